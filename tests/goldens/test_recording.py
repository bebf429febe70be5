"""Recording and promoting: only from real runs, only to scratch, only what can be relied on."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from offbook.determinism.clock import FrozenClock
from offbook.errors import OffbookError, RunError, UsageError
from offbook.goldens.fixture_store import read_scenarios
from offbook.goldens.golden_recording import find_complaints, promote, record
from offbook.goldens.project import Project
from tests.goldens.projects import LIVE, make_project, record_one


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(make_project(tmp_path))


def promote_one(project: Project, name: str, *, replace: bool = False) -> list[Path]:
    return asyncio.run(promote(project.library, name, project.registry.find, replace=replace))


def test_a_recording_has_the_steps_and_the_events_of_one_run(project: Project):
    path = record_one(project, "till", "open-drawer")
    (one,) = read_scenarios(path)
    assert path == project.root / "fixtures/scratch/till/open-drawer.jsonl"
    assert one.fixture.steps == [
        {"type": "put", "coins": 1},
        {"type": "put", "coins": 2},
        {"type": "openDrawer"},
    ]
    assert one.fixture.expect == {
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
    assert one.fixture.metadata["recordedAt"] == "2023-11-14T22:13:20.000Z"
    assert one.fixture.metadata["description"] == "The drawer opens with what was put in."


def test_recording_never_touches_a_golden(project: Project):
    golden = project.library.find("golden", "till/open-drawer")
    before = golden.read_bytes()
    write_live(project, LIVE.replace("till.put(1)", "till.put(7)"))
    record_one(project, "till", "open-drawer")
    assert golden.read_bytes() == before


@pytest.mark.parametrize("name", ["PYTEST_CURRENT_TEST", "PYTEST_VERSION"])
async def test_nothing_is_recorded_in_a_test_run(project: Project, name: str):
    clock = FrozenClock()
    work = record(project.library, project.registry, "till", "open-drawer", clock, {name: "x"})
    with pytest.raises(UsageError, match="this is a test run"):
        await work
    assert project.library.paths("scratch") == []


async def test_this_very_test_run_is_recognised(project: Project):
    with pytest.raises(UsageError, match="this is a test run"):
        await record(project.library, project.registry, "till", "open-drawer", FrozenClock())


def write_live(project: Project, text: str) -> Project:
    """Another live script in the place of the present one."""
    project.registry.script_path("till").write_text(text)
    project.registry = Project(project.root).registry
    return project


PLAY = LIVE[: LIVE.index("    till.put(1)")]
UNRECORDABLE = {
    "a name that is not there": (LIVE, "open-drawr", "did you mean 'open-drawer'"),
    "a path for a name": (LIVE, "../golden", "is no name for a fixture"),
    "something that is no step": (
        PLAY + "    till.steal(1)\n",
        "open-drawer",
        "'steal' is no step, so a replay could not repeat it",
    ),
    "nothing done": (PLAY + "    pass\n", "open-drawer", "did nothing"),
    "a step that was not awaited": (
        PLAY + "    forgotten = till.open_drawer()\n    forgotten.close()\n",
        "open-drawer",
        "the step 'open_drawer' did not come to its end",
    ),
    "a key that is missing": (
        LIVE.replace("@scenario()", "@scenario(needs=['TILL_KEY'])"),
        "open-drawer",
        "needs TILL_KEY",
    ),
    "a script that does not load": (
        "x = 1\nraise ValueError('late')\n",
        "open-drawer",
        "till_live.py:2: the live script raised ValueError: late",
    ),
    "a script with a typo": (
        "x = 1\ndef f(:\n",
        "open-drawer",
        "till_live.py:2: the live script raised SyntaxError",
    ),
    "too long": (
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
def test_what_cannot_be_recorded_says_why(project: Project, script: str, name: str, message: str):
    write_live(project, script)
    with pytest.raises(OffbookError) as raised:
        record_one(project, "till", name)
    assert message in str(raised.value)
    assert project.library.paths("scratch") == []


def test_promoting_moves_a_recording_and_its_sidecar(project: Project):
    write_live(project, LIVE.replace("@scenario()", "@scenario(match='prefix')"))
    record_one(project, "till", "open-drawer")
    written = promote_one(project, "till/open-drawer", replace=True)
    assert [path.name for path in written] == ["open-drawer.match.json", "open-drawer.jsonl"]
    assert project.library.paths("scratch") == []
    (golden,) = project.library.scenarios()
    assert golden.rule.match == "prefix"


def test_a_golden_that_is_there_is_replaced_only_when_asked_to(project: Project):
    golden = project.library.find("golden", "till/open-drawer")
    before = golden.read_bytes()
    write_live(project, LIVE.replace("till.put(1)", "till.put(7)"))
    record_one(project, "till", "open-drawer")
    with pytest.raises(UsageError, match="--replace"):
        promote_one(project, "till/open-drawer")
    assert golden.read_bytes() == before
    promote_one(project, "till/open-drawer", replace=True)
    assert golden.read_bytes() != before


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


TAMPERED = {
    "another name": ('"scenario":"open-drawer"', '"scenario":"other"', "is called 'other'"),
    "another result": ('"coins":3', '"coins":4', "edited by hand since it was recorded"),
    "another date": ('"recordedAt":"2023', '"recordedAt":"2024', "edited by hand"),
    "no date": ('"recordedAt":', '"recorded":', "recordedAt is missing"),
    "no provenance": ('"provenance":', '"source":', "made by hand"),
    "a secret": ('"component":"till"', f'"component":"sk-{"a1B2" * 12}"', "a secret at $.meta"),
    "a secret field": ('"component":"till"', '"password":"hunter2hunter2"', "a secret at $.meta"),
    "a home": ('"component":"till"', '"component":"/home/ada/till"', "a personal path at $.meta"),
    "a Mac's home": ('"component":"till"', '"component":"/Users/ada/x"', "a personal path"),
    "what does not replay": ('"coins":2', '"coins":5', "expected 3, got 6"),
}


@pytest.mark.parametrize("before, after, message", TAMPERED.values(), ids=TAMPERED)
def test_what_was_tampered_with_is_not_promoted(
    project: Project, before: str, after: str, message: str
):
    path = record_one(project, "till", "open-drawer")
    change(path, before, after)
    with pytest.raises(RunError) as raised:
        promote_one(project, "till/open-drawer", replace=True)
    assert message in str(raised.value)
    assert f"{path}:1" in str(raised.value)
    assert path.exists()


def test_a_sidecar_that_was_changed_is_seen(project: Project):
    path = record_one(project, "till", "open-drawer")
    path.with_name("open-drawer.match.json").write_text('{"match": "subset"}')
    with pytest.raises(RunError, match="edited by hand"):
        promote_one(project, "till/open-drawer", replace=True)


def test_a_copy_under_another_name_is_not_promoted(project: Project):
    copied = LIVE + '\n\n@scenario("other")\nasync def other(till):\n    await open_drawer(till)\n'
    write_live(project, copied)
    record_one(project, "till", "other")
    with pytest.raises(RunError, match="it is a copy of till/open-drawer"):
        promote_one(project, "till/other")


def test_a_golden_that_was_edited_is_flagged(project: Project):
    path = project.library.find("golden", "till/open-drawer")
    assert list(find_complaints(project.library, path)) == []
    change(path, '"coins":3', '"coins":4')
    assert [one.what for one in find_complaints(project.library, path)] == [
        "it was edited by hand since it was recorded"
    ]


def test_a_name_that_is_not_there_is_told_with_the_nearest(project: Project):
    record_one(project, "till", "open-drawer")
    with pytest.raises(UsageError, match="did you mean 'till/open-drawer'"):
        promote_one(project, "till/open-draw")


def test_a_recording_replays_in_another_order_of_keys(project: Project):
    path = project.library.find("golden", "till/open-drawer")
    whole = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(dict(sorted(whole.items()))) + b"\n")
    assert list(find_complaints(project.library, path)) == []
