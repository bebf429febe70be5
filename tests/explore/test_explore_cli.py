"""The command `offbook explore`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from offbook.errors import UsageError
from offbook.explore import Counterexample, Exploration
from offbook.explore.explore_cli import explore_command
from tests.explore import worlds
from tests.forked import forked_command, run_python

SHOP = Path(worlds.__file__).read_text()
OPTIONS = ("Refund order 7", "--invariant", "shop:never_twice", "--runs", "200")
AGENT = """
import json, os, sys, urllib.request
from threading import Event

TOOL = {"type": "function", "function": {"name": "divide", "parameters": {
    "type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}}}
messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(10):
    body = {"model": "m", "messages": messages, "tools": [TOOL]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer x"},
    )
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        by = json.loads(call["function"]["arguments"])["by"]
        result = str(100 / by)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
print(message.get("content"))
"""

BOT = """
import json, openai

TOOL = {"type": "function", "function": {"name": "divide", "parameters": {
    "type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}}}

def divide(by):
    return str(100 / by)

def bot(prompt):
    client = openai.OpenAI(api_key="x", max_retries=0)
    messages = [{"role": "user", "content": prompt}]
    for _ in range(10):
        reply = client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
        message = reply.choices[0].message
        messages.append(message.to_dict())
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            result = divide(json.loads(call.function.arguments)["by"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return message.content
"""
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def run(
    folder: Path, *arguments: str, imports: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "offbook", "explore", *arguments, cwd=folder, imports=imports)


def test_a_broken_invariant_is_exit_code_1_with_the_script(folder: Path):
    outcome = run(folder, "shop:broken_shop", *OPTIONS)
    assert outcome.returncode == 1
    assert '[call("refund", {"number": 7}), call("refund", {"number": 7})],' in outcome.stdout


def test_an_agent_without_a_bug_is_exit_code_0_with_what_was_tried(folder: Path):
    outcome = run(folder, "shop:fixed_shop", *OPTIONS[:3], "--runs", "5")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("no behaviour broke an invariant: 5 behaviours")


def test_the_result_as_json_has_the_script(folder: Path):
    outcome = run(folder, "shop:broken_shop", *OPTIONS, "--json")
    assert "refund" in json.loads(outcome.stdout)["findings"][0]["script"]


def test_a_long_search_keeps_scripts_and_their_traces_in_a_folder(folder: Path):
    options = ("--minutes", "0.02", "--jobs", "2", "--corpus", "corpus")
    outcome = run(folder, "shop:fixed_shop", "Refund order 7", *options)
    traces = [*(folder / "corpus").glob("*.jsonl")]
    assert f"corpus: {len(traces)} scripts" in outcome.stdout, outcome.stderr
    table = run_python("-m", "offbook", "report", "corpus", "--format", "coverage", cwd=folder)
    assert "refund" in table.stdout


def test_the_saved_test_fails_until_the_bug_is_fixed(folder: Path):
    run(folder, "shop:broken_shop", *OPTIONS, "--save", "test_found.py")
    broken = run_python(*PYTEST, cwd=folder)
    (folder / "shop.py").write_text(SHOP.replace("shop = Shop()", "shop = Shop(locked=True)"))
    fixed = run_python(*PYTEST, cwd=folder)
    assert (broken.returncode, fixed.returncode) == (1, 0), broken.stdout


COUNTING = """
from shop import fixed_shop

opened = []

def world():
    opened.append(1)
    return fixed_shop()

def third_time(run, state):
    assert len(opened) < 3
"""


def test_a_script_that_breaks_only_a_used_process_is_not_saved(folder: Path):
    (folder / "counting.py").write_text(COUNTING)
    options = ("--invariant", "counting:third_time", "--runs", "5", "--save", "test_found.py")
    outcome = run(folder, "counting:world", "Refund order 7", *options)
    assert "not saved: 1 finding whose script alone does not repeat it" in outcome.stdout
    assert not (folder / "test_found.py").exists()


def test_an_agent_is_explored_without_a_world_and_its_saved_test_fails_until_it_is_fixed(
    folder: Path,
):
    (folder / "bots.py").write_text(BOT)
    options = ("--runs", "12", "--without", "schema", "--save", "test_found.py")
    outcome = run(folder, "bots:bot", "Divide 100", *options, imports=["openai"])
    assert "ZeroDivisionError" in outcome.stdout, outcome.stderr
    broken = run_python(*PYTEST, cwd=folder, imports=["openai"])
    assert "ZeroDivisionError" in broken.stdout
    handled = (
        "    try:\n        return str(100 / by)\n    except Exception as e:\n        return repr(e)"
    )
    fixed_bot = BOT.replace("    return str(100 / by)", handled)
    (folder / "bots.py").write_text(fixed_bot)
    assert "ZeroDivisionError" not in (run_python(*PYTEST, cwd=folder, imports=["openai"]).stdout)


def test_a_world_that_raises_is_exit_code_2_with_its_place(folder: Path):
    (folder / "closed.py").write_text("def world():\n    return {}['door']\n")
    outcome = run(folder, "closed:world", "Hi")
    assert outcome.returncode == 2
    assert f"{folder}/closed.py:2: the world raised KeyError: 'door'" in outcome.stderr


def test_a_world_that_makes_a_client_needs_no_key(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    world = "def world():\n    openai.OpenAI()\n    return bot\n"
    (folder / "bots.py").write_text(f"{BOT}\n{world}")
    options = ("--runs", "2", "--without", "crash")
    outcome = run(folder, "bots:world", "Divide 100", *options, imports=["openai"])
    assert outcome.returncode == 0, outcome.stderr


def test_an_agent_that_makes_its_client_on_import_needs_no_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = 'client = openai.OpenAI(api_key="x", max_retries=0)'
    bot = BOT.replace(f"    {made}\n", "").replace(
        "openai\n", "openai\n\nclient = openai.OpenAI()\n", 1
    )
    (folder / "bots.py").write_text(bot)
    options = ("--runs", "2", "--save", "test_found.py")
    outcome = run(folder, "bots:bot", "Divide 100", *options, imports=["openai"])
    assert "explored: 2 behaviours" in outcome.stdout, outcome
    saved = run_python(*PYTEST, cwd=folder, imports=["openai"]).stdout
    assert "no unhandled exception" in saved
    assert "API_KEY" not in saved


def test_an_object_that_is_no_agent_is_refused(folder: Path):
    (folder / "bots.py").write_text("bot = 7")
    outcome = run(folder, "bots:bot", "Go")
    assert outcome.returncode == 2
    assert "int" in outcome.stderr


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """Return the folder of a command with its saved test, the exit code and the output."""
    folder = tmp_path_factory.mktemp("command")
    (folder / "agent.py").write_text(AGENT)
    command = forked_command("agent.py", "{prompt}")
    save = ("--save", "tests/test_found.py")
    outcome = run(folder, "Divide 100", "--runs", "12", *save, "--", *command)
    return folder, outcome.returncode, outcome.stdout


def test_a_command_is_explored_over_the_wire(searched: tuple[Path, int, str]):
    _, code, output = searched
    assert code == 1
    assert "no unhandled exception" in output


def test_the_saved_test_of_a_command_fails_until_it_is_fixed(
    searched: tuple[Path, int, str], tmp_path: Path
):
    folder = shutil.copytree(searched[0], tmp_path / "copy")
    broken = run_python(*PYTEST, cwd=folder)
    fixed_agent = AGENT.replace('by = json.loads(call["function"]["arguments"])["by"]', "by = 1")
    (folder / "agent.py").write_text(fixed_agent)
    fixed = run_python(*PYTEST, cwd=folder)
    assert (broken.returncode, fixed.returncode) == (1, 0), broken.stdout + fixed.stdout


def test_a_saved_test_does_not_depend_on_the_folder_where_it_is_started(
    folder: Path, searched: tuple[Path, int, str]
):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    run(folder, "shop:broken_shop", *OPTIONS, "--save", "tests/test_world.py")
    tests = (searched[0] / "tests/test_found.py", folder / "tests/test_world.py")
    outcome = run_python(*PYTEST, *tests, cwd=elsewhere)
    assert outcome.stdout.count("InvariantBroken: ") >= 2, outcome.stdout
    assert "passed" not in outcome.stdout


def test_a_command_that_hangs_is_found_within_the_deadline(folder: Path):
    (folder / "agent.py").write_text(AGENT.replace("str(100 / by)", "by or Event().wait()"))
    command = forked_command("agent.py", "{prompt}")
    outcome = run(folder, "Divide 100", "--runs", "6", "--deadline", "5", "--", *command)
    assert "no hang: the agent did not end within 5 s" in outcome.stdout


def test_a_command_that_fails_before_it_calls_the_model_is_no_finding(folder: Path):
    outcome = run(folder, "Go", "--runs", "3", "--", sys.executable, "absent.py")
    assert outcome.returncode == 2
    assert "the agent failed before it called the model" in outcome.stderr
    assert "can't open file" in outcome.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("shop:world", "Go"), "shop has no 'world'"),
        (("shp:world", "Go"), "cannot import shp"),
        (("shop", "Go"), "expected MODULE:NAME, got 'shop'"),
        (("Go",), "expected an agent or a world and a prompt"),
    ],
)
def test_wrong_usage_is_exit_code_2(folder: Path, arguments: tuple[str, ...], message: str):
    outcome = run(folder, *arguments)
    assert outcome.returncode == 2
    assert message in outcome.stderr


@pytest.mark.parametrize("end", [KeyboardInterrupt(), UsageError("the world raised one")])
def test_what_was_found_before_a_search_ends_early_is_printed_and_saved(
    folder: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
):
    def search(*_: object, progress: Callable[[Exploration], None], **__: object) -> None:
        found = Exploration("Refund order 7", 0, behaviours=3)
        found.findings.append(
            Counterexample("never_twice", "twice", 'when("Refund", [say("Done.")])', 1, (), 1)
        )
        progress(found)
        raise end

    monkeypatch.chdir(folder)
    monkeypatch.setattr("offbook.explore.search.explore", search)
    arguments = ["shop:broken_shop", "Refund order 7", "--save", "test_found.py"]
    outcome = CliRunner().invoke(explore_command, arguments)
    assert 'when("Refund", [say("Done.")])' in outcome.output
    assert 'say("Done.")' in (folder / "test_found.py").read_text()


def interrupt_search(*_: object, progress: Callable[[Exploration], None], **__: object) -> None:
    progress(Exploration("Refund order 7", 0, behaviours=3))
    raise KeyboardInterrupt


def test_an_interrupted_search_without_a_finding_says_what_it_has_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("offbook.explore.search.explore", interrupt_search)
    outcome = CliRunner().invoke(explore_command, ["shop:broken_shop", "Refund order 7"])
    assert "explored: 3 behaviours" in outcome.output
    assert "the search did not end" in outcome.output


def test_a_search_that_is_interrupted_at_its_first_behaviour_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(folder)
    monkeypatch.setattr("offbook.explore.search.explore", interrupt)
    outcome = CliRunner().invoke(explore_command, ["shop:broken_shop", "Refund order 7"])
    assert "nothing was explored yet: the first behaviour had not ended" in outcome.stderr


def test_the_json_of_an_interrupted_search_does_not_look_like_a_pass(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("offbook.explore.search.explore", interrupt_search)
    outcome = CliRunner().invoke(explore_command, ["shop:broken_shop", "Refund order 7", "--json"])
    assert json.loads(outcome.stdout)["complete"] is False
