"""Recordings come from real runs and go to scratch; only unedited ones become golden."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from offbook.determinism import FrozenClock
from offbook.errors import OffbookError, RunError, UsageError
from offbook.goldens import Project, find_problems, promote, read_scenarios, record
from tests.goldens.sample_project import LIVE, make_project, record_scenario


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(make_project(tmp_path))


def promote_scenario(project: Project, name: str, *, replace: bool = False) -> list[Path]:
    return asyncio.run(promote(project.fixtures, name, project.registry.find, replace=replace))


def test_recording_has_steps_and_events_of_one_run(project: Project):
    path = record_scenario(project, "till", "open-drawer")
    (scenario,) = read_scenarios(path)
    assert path == project.root / "fixtures/scratch/till/open-drawer.jsonl"
    assert scenario.fixture.steps == [
        {"type": "put", "coins": 1},
        {"type": "put", "coins": 2},
        {"type": "openDrawer"},
    ]
    assert scenario.fixture.expect == {
        "events": [
            {
                "event": {"type": "till:open", "coins": 3},
                "context": {"sessionId": "record-open-drawer"},
            }
        ],
        "status": "idle",
        "sessionActive": False,
        "coins": 3,
    }
    assert scenario.fixture.metadata["recordedAt"] == "2023-11-14T22:13:20.000Z"
    description = "The drawer opens with the coins that were put in."
    assert scenario.fixture.metadata["description"] == description


def test_a_field_observed_of_an_event_is_recorded_and_promoted(project: Project):
    write_live(project, LIVE.replace('"till:open", {"coins"', '"till:open", {"observed"'))
    record_scenario(project, "till", "open-drawer")
    promote_scenario(project, "till/open-drawer", replace=True)
    (golden,) = project.fixtures.scenarios()
    assert golden.fixture.expect["events"][0]["event"] == {"type": "till:open", "observed": 3}


def test_recording_does_not_change_the_golden(project: Project):
    golden = project.fixtures.find("golden", "till/open-drawer")
    before = golden.read_bytes()
    write_live(project, LIVE.replace("till.put(1)", "till.put(7)"))
    record_scenario(project, "till", "open-drawer")
    assert golden.read_bytes() == before


@pytest.mark.parametrize("name", ["PYTEST_CURRENT_TEST", "PYTEST_VERSION"])
async def test_recording_is_refused_in_a_test_run(project: Project, name: str):
    clock = FrozenClock()
    work = record(project.fixtures, project.registry, "till", "open-drawer", clock, {name: "x"})
    with pytest.raises(UsageError, match="cannot record in a test run"):
        await work
    assert project.fixtures.paths("scratch") == []


async def test_recording_is_refused_in_this_test_run(project: Project):
    with pytest.raises(UsageError, match="cannot record in a test run"):
        await record(project.fixtures, project.registry, "till", "open-drawer", FrozenClock())


def write_live(project: Project, text: str) -> Project:
    """Replace the live script of the till."""
    project.registry.script_path("till").write_text(text)
    project.registry = Project(project.root).registry
    return project


HEAD = LIVE[: LIVE.index("    till.put(1)")]
UNRECORDABLE = {
    "unknown name": (LIVE, "open-drawr", "did you mean 'open-drawer'"),
    "path as a name": (LIVE, "../golden", "invalid fixture name '../golden'"),
    "not a step": (
        HEAD + "    till.steal(1)\n",
        "open-drawer",
        "a replay can repeat steps only; no step 'steal'",
    ),
    "no steps": (HEAD + "    pass\n", "open-drawer", "has no steps to record"),
    "step not awaited": (
        HEAD + "    forgotten = till.open_drawer()\n    forgotten.close()\n",
        "open-drawer",
        "the step 'open_drawer' was not awaited",
    ),
    "missing variable": (
        LIVE.replace("@scenario()", "@scenario(needs=['TILL_KEY'])"),
        "open-drawer",
        "needs TILL_KEY",
    ),
    "script raises": (
        "x = 1\nraise ValueError('late')\n",
        "open-drawer",
        "till_live.py:2: the live script raised ValueError: late",
    ),
    "script with a syntax error": (
        "x = 1\ndef f(:\n",
        "open-drawer",
        "till_live.py:2: the live script raised SyntaxError",
    ),
    "timeout": (
        LIVE.replace("@scenario()", "@scenario(timeout=0.01)").replace(
            "    till.put(1)", "    import asyncio\n    await asyncio.Event().wait()"
        ),
        "open-drawer",
        "took longer than 0.01 s",
    ),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("script, name, message", UNRECORDABLE.values(), ids=UNRECORDABLE)
def test_recording_error_names_the_reason(project: Project, script: str, name: str, message: str):
    write_live(project, script)
    with pytest.raises(OffbookError) as raised:
        record_scenario(project, "till", name)
    assert message in str(raised.value)
    assert project.fixtures.paths("scratch") == []


def test_promotion_moves_recording_and_sidecar(project: Project):
    write_live(project, LIVE.replace("@scenario()", "@scenario(match='prefix')"))
    record_scenario(project, "till", "open-drawer")
    written = promote_scenario(project, "till/open-drawer", replace=True)
    assert [path.name for path in written] == ["open-drawer.match.json", "open-drawer.jsonl"]
    assert project.fixtures.paths("scratch") == []
    (golden,) = project.fixtures.scenarios()
    assert golden.rule.match == "prefix"


def test_existing_golden_is_replaced_only_with_replace(project: Project):
    golden = project.fixtures.find("golden", "till/open-drawer")
    before = golden.read_bytes()
    write_live(project, LIVE.replace("till.put(1)", "till.put(7)"))
    record_scenario(project, "till", "open-drawer")
    with pytest.raises(UsageError, match="--replace"):
        promote_scenario(project, "till/open-drawer")
    assert golden.read_bytes() == before
    promote_scenario(project, "till/open-drawer", replace=True)
    assert golden.read_bytes() != before


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


TAMPERED = {
    "other name": ('"scenario":"open-drawer"', '"scenario":"other"', "is named 'other'"),
    "other result": ('"coins":3', '"coins":4', "edited after it was recorded"),
    "other date": ('"recordedAt":"2023', '"recordedAt":"2024', "edited after"),
    "no date": ('"recordedAt":', '"recorded":', "recordedAt is missing"),
    "no provenance": ('"provenance":', '"source":', "metadata.provenance is missing"),
    "secret": ('"component":"till"', f'"component":"sk-{"a1B2" * 12}"', "a secret at $.meta"),
    "secret field": ('"component":"till"', '"password":"hunter2hunter2"', "a secret at $.meta"),
    "home folder": ('"component":"till"', '"component":"/home/ada/till"', "home folder at $.meta"),
    "home folder on macOS": ('"component":"till"', '"component":"/Users/ada/x"', "home folder at"),
    "other result of the replay": ('"coins":2', '"coins":5', "expected 3, got 6"),
}


@pytest.mark.parametrize("before, after, message", TAMPERED.values(), ids=TAMPERED)
def test_edited_recording_is_not_promoted(project: Project, before: str, after: str, message: str):
    path = record_scenario(project, "till", "open-drawer")
    change(path, before, after)
    with pytest.raises(RunError) as raised:
        promote_scenario(project, "till/open-drawer", replace=True)
    assert message in str(raised.value)
    assert f"{path}:1" in str(raised.value)
    assert path.exists()


def test_edited_sidecar_is_detected(project: Project):
    path = record_scenario(project, "till", "open-drawer")
    path.with_name("open-drawer.match.json").write_text('{"match": "subset"}')
    with pytest.raises(RunError, match="edited after it was recorded"):
        promote_scenario(project, "till/open-drawer", replace=True)


def test_copy_under_another_name_is_not_promoted(project: Project):
    copied = LIVE + '\n\n@scenario("other")\nasync def other(till):\n    await open_drawer(till)\n'
    write_live(project, copied)
    record_scenario(project, "till", "other")
    with pytest.raises(RunError, match="duplicate of till/open-drawer"):
        promote_scenario(project, "till/other")


def test_edited_golden_is_detected(project: Project):
    path = project.fixtures.find("golden", "till/open-drawer")
    assert list(find_problems(project.fixtures, path)) == []
    change(path, '"coins":3', '"coins":4')
    assert [problem.what for problem in find_problems(project.fixtures, path)] == [
        "edited after it was recorded"
    ]


def test_unknown_name_is_reported_with_a_suggestion(project: Project):
    record_scenario(project, "till", "open-drawer")
    with pytest.raises(UsageError, match="did you mean 'till/open-drawer'"):
        promote_scenario(project, "till/open-draw")


def test_order_of_keys_is_not_an_edit(project: Project):
    path = project.fixtures.find("golden", "till/open-drawer")
    whole = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(dict(sorted(whole.items()))) + b"\n")
    assert list(find_problems(project.fixtures, path)) == []
