"""The commands `offbook golden …`."""

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from offbook.surfaces.cli import main
from tests.goldens.sample_project import LIVE, make_project

RunGolden = Callable[..., tuple[int, str]]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "goldens"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample project, with a subfolder of it as the current folder."""
    root = make_project(tmp_path)
    (root / "pyproject.toml").touch()
    monkeypatch.chdir(root / "tests")
    return root


@pytest.fixture
def golden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunGolden:
    """Runs `offbook golden ARGS`, as outside of a test; returns the exit code and the output."""

    def run(*args: str) -> tuple[int, str]:
        for name in ("PYTEST_CURRENT_TEST", "PYTEST_VERSION"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(SystemExit) as end:
            main(["golden", *args])
        output = capsys.readouterr()
        return int(end.value.code or 0), output.out + output.err

    return run


def write_live_script(project: Path, before: str, after: str) -> None:
    (project / "scripts" / "live" / "till_live.py").write_text(LIVE.replace(before, after))


def test_record_prints_files_and_next_commands(project: Path, golden: RunGolden):
    code, output = golden("record", "till/open-drawer")
    assert code == 0
    assert "recorded till/open-drawer: 3 steps, 1 event" in output
    assert "fixtures/scratch/till/open-drawer.jsonl" in output
    assert "review: offbook review till/open-drawer" in output


def test_changed_component_is_recorded_and_promoted(project: Path, golden: RunGolden):
    write_live_script(project, "till.put(1)", "till.put(7)")
    assert golden("record", "till/open-drawer")[0] == 0
    assert golden("promote", "till/open-drawer")[0] == 2
    code, output = golden("promote", "till/open-drawer", "--replace")
    assert (code, output) == (0, "promoted: fixtures/golden/till/open-drawer.jsonl\n")


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    def confirm(_question: str) -> bool:
        return text == "y"

    monkeypatch.setattr("click.confirm", confirm)


GOLDEN = "fixtures/golden/till/open-drawer.jsonl"


def test_update_records_shows_the_change_asks_and_promotes(
    project: Path, golden: RunGolden, monkeypatch: pytest.MonkeyPatch
):
    write_live_script(project, "till.put(1)", "till.put(7)")
    before = (project / GOLDEN).read_bytes()
    answer(monkeypatch, "n")
    code, output = golden("update", "till/open-drawer")
    assert code == 1
    assert '-          "coins": 3' in output
    assert '+          "coins": 9' in output
    assert "not updated; to do it: offbook review till/open-drawer" in output
    assert (project / GOLDEN).read_bytes() == before
    answer(monkeypatch, "y")
    code, output = golden("update", "till/open-drawer")
    assert code == 0
    assert f"promoted: {GOLDEN}\n1 updated\n" in output
    assert golden("check") == (0, "1 scenario replayed, 0 problems\n")


def test_update_without_a_terminal_changes_nothing(
    project: Path, golden: RunGolden, monkeypatch: pytest.MonkeyPatch
):
    write_live_script(project, "till.put(1)", "till.put(7)")
    before = (project / GOLDEN).read_bytes()
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, output = golden("update", "till")
    assert (code, (project / GOLDEN).read_bytes()) == (1, before)
    assert "1 not updated" in output


def test_update_of_a_first_golden_is_one_command(project: Path, golden: RunGolden):
    (project / GOLDEN).unlink()
    code, output = golden("update", "till/open-drawer", "--yes")
    assert code == 0
    assert '+          "coins": 3' in output
    assert (project / GOLDEN).is_file()


def test_update_of_an_unchanged_component_keeps_the_golden(project: Path, golden: RunGolden):
    before = (project / GOLDEN).read_bytes()
    code, output = golden("update", "--all")
    assert (code, output) == (0, "till/open-drawer: unchanged\n1 unchanged\n")
    assert (project / GOLDEN).read_bytes() == before
    assert not list((project / "fixtures" / "scratch").glob("*/*"))


def test_update_of_all_goes_on_after_a_failure(project: Path, golden: RunGolden):
    script = project / "scripts" / "live" / "till_live.py"
    script.write_text(
        LIVE.replace("till.put(1)", "till.put(7)")
        + "\n\n@scenario(needs=['NO_SUCH_KEY'])\ndef with_key(till):\n    till.put(1)\n"
        + "\n\n@scenario('broken')\ndef broken(till):\n    raise ValueError('jammed')\n"
    )
    code, output = golden("update", "--all", "--yes")
    assert code == 1
    assert "till/with-key: skipped, NO_SUCH_KEY is not set" in output
    assert "till/broken: raised ValueError: jammed" in output
    assert "1 updated, 1 skipped, 1 failed" in output


@pytest.mark.parametrize(
    "args, message",
    [
        (["update"], "give names, or --all"),
        (["update", "till", "--all"], "give names, or --all"),
        (["update", "till/open-drawr"], "did you mean 'open-drawer'"),
        (["update", "tell"], "did you mean 'till'"),
        (["record", "till", "open-drawer"], "offbook golden record till/open-drawer"),
    ],
)
def test_wrong_names_are_reported_with_the_right_form(
    project: Path, golden: RunGolden, args: list[str], message: str
):
    code, output = golden(*args)
    assert code == 2
    assert message in output


def test_recordings_are_ignored_by_git(project: Path, golden: RunGolden):
    golden("record", "till/open-drawer")
    assert (project / "fixtures" / "scratch" / ".gitignore").read_text() == "*\n"


VOLATILE = """
from uuid import uuid4
from shop.orders import first_total
from offbook.goldens import Component, scenario, step


class Order(Component):
    @step
    def place(self):
        self.hub.emit("order:placed", {"order": {"id": str(uuid4()), "total": first_total}})

    def observe(self):
        return {"token": uuid4().hex}


@scenario(volatile=["order.id", "token"])
def place_order(order):
    order.place()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with its package in `src`, which pytest imports by its setting `pythonpath`."""
    files = {
        "pytest.ini": "[pytest]\npythonpath = src\n",
        "src/shop/__init__.py": "",
        "src/shop/orders.py": "first_total = 7\n",
        "scripts/live/order_live.py": VOLATILE,
        "packages/tools/readme.txt": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path / "packages" / "tools")
    monkeypatch.setattr("sys.path", [*sys.path])
    for name in list_shop_modules():  # of other tests
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in list_shop_modules():
        del sys.modules[name]


def list_shop_modules() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "shop"]


def test_live_script_imports_the_project_as_pytest_does(shop: Path, golden: RunGolden):
    code, output = golden("update", "order/place-order", "--yes")
    assert (code, "1 updated" in output) == (0, True)
    assert (shop / "fixtures" / "golden" / "order" / "place-order.jsonl").is_file()


def test_volatile_fields_are_compared_by_their_type(shop: Path, golden: RunGolden):
    golden("update", "--all", "--yes")
    text = (shop / "fixtures" / "golden" / "order" / "place-order.jsonl").read_text()
    assert '"order":{"id":"[string]","total":7}' in text
    assert golden("check") == (0, "1 scenario replayed, 0 problems\n")
    assert golden("check", "--live")[0] == 0
    script = shop / "scripts" / "live" / "order_live.py"
    script.write_text(VOLATILE.replace("str(uuid4())", "7"))
    code, output = golden("check")
    assert code == 1
    assert 'events[0].event.order.id: expected "[string]", got "[number]"' in output


def test_promotion_of_a_volatile_field_names_the_option(shop: Path, golden: RunGolden):
    script = shop / "scripts" / "live" / "order_live.py"
    script.write_text(VOLATILE.replace('"order.id", ', ""))
    code, output = golden("update", "order", "--yes")
    assert code == 1
    assert 'if a value changes with every run: @scenario(volatile=["id"])' in output


def test_volatile_field_that_does_not_exist_is_an_error(shop: Path, golden: RunGolden):
    script = shop / "scripts" / "live" / "order_live.py"
    script.write_text(VOLATILE.replace('"order.id"', '"order.idd"'))
    code, output = golden("record", "order/place-order")
    assert code == 2
    assert "the volatile field 'order.idd' is in no event and not in the state" in output


def test_list_shows_golden_and_scratch_fixtures(project: Path, golden: RunGolden):
    golden("record", "till/open-drawer")
    _, output = golden("show")
    assert [line.split()[:3] for line in output.splitlines()] == [
        ["golden", "till/open-drawer", "exact"],
        ["scratch", "till/open-drawer", "exact"],
    ]
    listed = msgspec.json.decode(golden("show", "--json")[1])
    assert listed["golden"][0]["steps"] == 3


def test_list_of_no_fixtures_says_so(tmp_path: Path, golden: RunGolden):
    assert "no fixtures in" in golden("--root", str(tmp_path), "show")[1]


def test_show_prints_a_fixture_as_json(project: Path, golden: RunGolden):
    code, output = golden("show", "till/open-drawer")
    assert code == 0
    assert msgspec.json.decode(output)["scenario"] == "open-drawer"
    assert golden("show", "till/open-drawer", "--scratch")[0] == 2


def test_check_replays_and_finds_edits(project: Path, golden: RunGolden):
    assert golden("check") == (0, "1 scenario replayed, 0 problems\n")
    path = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    path.write_text(path.read_text().replace('"coins":3', '"coins":4'))
    code, output = golden("check", "till/open-drawer")
    assert code == 1
    assert "expected 4, got 3" in output
    assert "edited after it was recorded" in output


OBSERVED = "**super().observe(), "
UNSEEN: dict[str, tuple[str, str, str]] = {
    "a state that was null": (
        LIVE.replace(OBSERVED, f'{OBSERVED}"error": None, '),
        LIVE.replace(OBSERVED, f'{OBSERVED}"error": "jammed", '),
        'error: expected null, got "jammed"',
    ),
    "a state that was null and is missing": (
        LIVE.replace(OBSERVED, f'{OBSERVED}"error": None, '),
        LIVE,
        "the component does not report 'error'",
    ),
    "a tool that was not executed": (
        LIVE,
        LIVE.replace("+= coins\n", "+= coins\n        self.hub.emit('tool.start')\n"),
        "events[0]: expected no such event",
    ),
}


@pytest.mark.parametrize("before, after, message", UNSEEN.values(), ids=UNSEEN)
@pytest.mark.parametrize("command", [("check",), ("check", "--live", "till")])
def test_check_finds_what_the_recording_did_not_have(
    project: Path,
    golden: RunGolden,
    command: tuple[str, ...],
    before: str,
    after: str,
    message: str,
):
    script = project / "scripts" / "live" / "till_live.py"
    script.write_text(before)
    assert golden("update", "till", "--yes")[0] == 0
    assert golden(*command)[0] == 0
    script.write_text(after)
    code, output = golden(*command)
    assert (code, message in output) == (1, True)


def test_check_goes_on_after_a_component_that_raises(project: Path, golden: RunGolden):
    write_foreign(project, "door", "imported")
    script = project / "scripts" / "live" / "door_live.py"
    script.write_text(LIVE.replace("self.coins}", "1 // 0}"))
    code, output = golden("check")
    assert (code, "2 scenarios replayed, 1 problem" in output) == (1, True)
    assert (
        f"raised ZeroDivisionError: integer division or modulo by zero (at {script}:12)" in output
    )


def test_check_reports_a_golden_in_a_nested_folder(project: Path, golden: RunGolden):
    nested = project / "fixtures" / "golden" / "till" / "more"
    nested.mkdir()
    (project / GOLDEN).rename(nested / "open-drawer.jsonl")
    code, output = golden("check")
    assert code == 1
    assert "more/open-drawer.jsonl:1: no test can replay this golden" in output


def test_check_without_goldens_exits_2(tmp_path: Path, golden: RunGolden):
    code, output = golden("--root", str(tmp_path), "check")
    assert code == 2
    assert "no goldens to check" in output


@pytest.mark.external
def test_goldens_of_another_project_are_checked_without_our_metadata(
    shared_data: Path, tmp_path: Path, golden: RunGolden
):
    shutil.copytree(EXAMPLE / "scripts", tmp_path / "scripts")
    shutil.copytree(shared_data / "open-harness", tmp_path / "fixtures")
    count = len(list((tmp_path / "fixtures" / "golden").glob("*/*.jsonl")))
    code, output = golden("--root", str(tmp_path), "check")
    assert (code, output.splitlines()) == (
        0,
        [
            f"origin not checked, not recorded by Offbook: {count}",
            f"{count} scenarios replayed, 0 problems",
        ],
    )


FOREIGN = {
    "sessionId": "s1",
    "scenario": "another-name",
    "steps": [{"type": "emit", "event": {"type": "a"}}],
    "expect": {"events": [{"event": {"type": "a"}, "context": {"sessionId": "s1"}}]},
}


def write_foreign(project: Path, component: str, name: str, **changes: object) -> None:
    path = project / "fixtures" / "golden" / component / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode({**FOREIGN, **changes}))


def test_a_fixture_that_no_scenario_here_records_needs_no_metadata(
    project: Path, golden: RunGolden
):
    write_foreign(project, "hub", "imported")
    code, output = golden("check")
    assert (code, output.splitlines()) == (
        0,
        ["origin not checked, not recorded by Offbook: 1", "2 scenarios replayed, 0 problems"],
    )


def test_a_fixture_that_a_scenario_here_records_needs_its_mark(project: Path, golden: RunGolden):
    write_foreign(project, "till", "open-drawer", scenario="open-drawer")
    code, output = golden("check")
    assert code == 1
    assert "not recorded: metadata.provenance is missing" in output


@pytest.mark.parametrize("command", [("check",), ("check", "--live", "till"), ("show",)])
def test_an_unreadable_file_does_not_hide_the_others(
    project: Path, golden: RunGolden, command: tuple[str, ...]
):
    write_foreign(project, "till", "flow", cases=[])
    code, output = golden(*command)
    assert code == (0 if command == ("show",) else 1)
    assert "till/flow.jsonl:1: unknown key 'cases'" in output
    assert "1 scenario replayed, 1 problem" in output or "till/open-drawer" in output


def test_a_check_that_can_read_no_file_fails(project: Path, golden: RunGolden):
    (project / GOLDEN).write_text("{}")
    code, output = golden("check")
    assert (code, output.splitlines()[-1]) == (1, "0 scenarios replayed, 1 problem")


def test_spec_new_does_not_overwrite(project: Path, golden: RunGolden):
    code, output = golden("spec", "--new", "cash-desk")
    assert code == 0
    assert "tests/specs/cash-desk.test-spec.md" in output
    assert golden("spec", "--new", "cash-desk")[0] == 2


def test_spec_check_counts_and_reports_problems(project: Path, golden: RunGolden):
    assert golden("spec") == (0, "1 spec, 1 requirement, 0 problems\n")
    code, output = golden("spec", "--ran")
    assert code == 2
    assert "no test results" in output
    (project / "tests" / "replay" / "test_till.py").unlink()
    code, output = golden("spec")
    assert code == 1
    assert output.startswith("tests/specs/till.test-spec.md:16: R1: missing test file")


def test_spec_check_replays_goldens(project: Path, golden: RunGolden):
    write_live_script(project, "self.coins += coins", "self.coins += 2 * coins")
    code, output = golden("spec")
    assert code == 1
    assert "open-drawer.jsonl:1: events[0].event.coins: expected 3, got 6" in output


def test_spec_check_without_specs_exits_2(tmp_path: Path, golden: RunGolden):
    assert golden("--root", str(tmp_path), "spec")[0] == 2


def test_spec_table_lists_requirements(project: Path, golden: RunGolden):
    assert "| till | R1: The drawer opens |" in golden("spec", "--table")[1]


def test_live_prints_states_and_counts(project: Path, golden: RunGolden):
    code, output = golden("check", "--live")
    assert (code, output) == (0, "passed  till/open-drawer\n1 passed, 0 failed, 0 skipped\n")


def test_live_with_skipped_scenarios_only_exits_1(
    project: Path, golden: RunGolden, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TILL_KEY", raising=False)
    write_live_script(project, "@scenario()", "@scenario(needs=['TILL_KEY'])")
    code, output = golden("check", "--live", "till")
    assert code == 1
    assert "0 passed, 0 failed, 1 skipped" in output
    assert "TILL_KEY is not set" in output
    assert "no scenario ran" in output


@pytest.mark.parametrize(
    "args, message",
    [
        (["check", "--live", "tell"], "did you mean 'till'"),
        (["--root", "/", "check", "--live", "x"], "no live script"),
    ],
)
def test_live_reports_an_unknown_component(
    project: Path, golden: RunGolden, args: list[str], message: str
):
    code, output = golden(*args)
    assert code == 2
    assert message in output


@pytest.mark.parametrize("words", [("check", "--live", "--foreign"), ("spec", "--ran", "--table")])
@pytest.mark.usefixtures("project")
def test_options_that_contradict_each_other_are_refused(golden: RunGolden, words: tuple[str, ...]):
    code, output = golden(*words)
    assert (code, "exclude each other" in output) == (2, True)


def test_a_golden_with_a_secret_is_printed_without_it(project: Path, golden: RunGolden):
    key = f"sk-proj-{'aB3' * 16}"
    path = project / GOLDEN
    path.write_text(path.read_text().replace('"coins":3', f'"coins":"Bearer {key}\\u001b[31m"'))
    assert key in path.read_text()
    for words in (("check", "--foreign"), ("show", "till/open-drawer")):
        _, output = golden(*words)
        assert ("[API_KEY]" in output, key in output, "\x1b" in output) == (True, False, False)


def test_check_prints_its_result_as_json(project: Path, golden: RunGolden):
    code, output = golden("check", "--json")
    assert code == 0
    found = msgspec.json.decode(output)
    assert found == {"replayed": ["till/open-drawer"], "problems": [], "origin_not_checked": []}
    path = project / GOLDEN
    path.write_text(path.read_text().replace('"coins":3', '"coins":4'))
    code, output = golden("check", "--json")
    (problem, *_) = msgspec.json.decode(output)["problems"]
    assert (code, "expected 4, got 3" in problem) == (1, True)


def test_check_of_live_scenarios_prints_their_states_as_json(project: Path, golden: RunGolden):
    code, output = golden("check", "--live", "--json")
    (scenario,) = msgspec.json.decode(output)["scenarios"]
    assert (code, scenario["name"], scenario["state"]) == (0, "till/open-drawer", "passed")


def test_spec_prints_each_requirement_with_its_state_as_json(project: Path, golden: RunGolden):
    code, output = golden("spec", "--json")
    (requirement, *_) = msgspec.json.decode(output)["requirements"]
    assert (code, requirement["component"], requirement["state"]) == (
        0,
        "till",
        "did not run since its file changed",
    )
