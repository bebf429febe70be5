"""Suites of other tools, as these wrote them, have the same verdicts as packs of Offbook."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from offbook.errors import FormatError, UsageError
from offbook.evals import RunOptions, run_pack
from offbook.evals.importers.suite import import_suite
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

PEERS = Path(__file__).with_name("peers")
AGENT = "agent.py:answer"
QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
}
Verdicts = dict[str, bool]


class Suite(NamedTuple):
    """A file of a peer, how its verdicts are read, and what is not carried over."""

    file: str
    verdicts: Callable[[Path], Verdicts]
    agent: str = ""
    missing: tuple[str, ...] = ()
    unlike: Mapping[str, bool] = {}  # the verdicts without what is not carried over


def stored(name: str, key: str = "") -> Callable[[Path], Verdicts]:
    def read(folder: Path) -> Verdicts:
        found = json.loads((folder / f"{name}.verdicts.json").read_text())
        return found[key] if key else found

    return read


def of_promptfoo(folder: Path) -> Verdicts:
    """Return the verdicts in the results; cases with the same description are numbered."""
    verdicts: Verdicts = {}
    for result in json.loads((folder / "promptfoo.json").read_text())["results"]["results"]:
        name = result["testCase"]["description"].replace(" ", "-")
        same = [each for each in verdicts if each == name or each.startswith(f"{name}-")]
        numbered = [each for each in same if each.removeprefix(name).strip("-").isdigit()]
        number = len(numbered) + (name in verdicts) + 1
        verdicts[name if number == 1 else f"{name}-{number}"] = result["success"]
    return verdicts


CODE = ("1 x assertion javascript",)
LOGS = sorted(path.name for path in PEERS.glob("written/inspect-*") if path.suffix != ".jsonl")
SUITES = [
    Suite("pydantic-evals.yaml", stored("pydantic-evals"), AGENT),
    *(Suite(f"deepeval.{kind}", stored("deepeval")) for kind in ("json", "csv", "jsonl")),
    Suite("deepeval.json", stored("deepeval"), AGENT),
    Suite("deepeval-run.json", stored("deepeval")),
    Suite("promptfoo.json", of_promptfoo, "", CODE),
    Suite(
        "promptfooconfig.yaml",
        of_promptfoo,
        AGENT,
        (*CODE, "1 x provider (the agent takes its place)"),
    ),
    *(Suite(name, stored("inspect", name)) for name in LOGS),
    Suite("inspect-data.jsonl", stored("inspect", "inspect-includes.eval"), AGENT),
]


def check_suite(suite: Suite, folder: Path, output: Path) -> None:
    """Import a suite, run it, and compare each verdict with that of its tool."""
    shutil.copy(PEERS / "agent.py", output)
    pack = output / "imported.eval.toml"
    _, missing = import_suite(folder / suite.file, pack, agent=suite.agent)
    assert tuple(missing) == suite.missing
    run = run_pack([pack], RunOptions(output=str(output / "results")))
    verdicts = {case.id: case.status == "pass" for case in run.cases}
    assert verdicts == {**suite.verdicts(folder), **suite.unlike}
    assert len(set(verdicts.values())) == 2, "a suite in which nothing passes or fails shows little"


def name_of(suite: Suite) -> str:
    return f"{suite.file}{'-with-agent' if suite.agent else ''}"


@pytest.mark.parametrize("suite", SUITES, ids=name_of)
def test_a_suite_has_the_verdicts_of_its_tool(suite: Suite, tmp_path: Path):
    check_suite(suite, PEERS / "written", tmp_path)


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.skipif(not WHOLE, reason="./dev clients installs the tools")
@pytest.mark.parametrize("name", ["pydantic-evals", "deepeval", "inspect", "promptfoo"])
def test_a_suite_that_its_tool_writes_now_has_its_verdicts(name: str, tmp_path: Path):
    write_suites(name, tmp_path)
    written = [suite for suite in SUITES if suite.file.startswith(name)]
    if name == "inspect":  # with each scorer; some of the logs are stored here
        logs = json.loads((tmp_path / "inspect.verdicts.json").read_text())
        written = [Suite(log, stored("inspect", log)) for log in logs]
    assert written
    for number, suite in enumerate(written):
        (tmp_path / str(number)).mkdir()
        check_suite(suite, tmp_path, tmp_path / str(number))


def write_suites(name: str, folder: Path) -> None:
    """Let a tool write its suites to a folder."""
    home = HOMES[name]
    assert home.ready, home.describe_missing()
    script = str(PEERS / f"write_{name.replace('-', '_')}.py")
    command = [home.python, script, str(folder)]
    if home.npm:
        program = home.folder / "node_modules" / ".bin" / name
        command = [sys.executable, script, str(folder), str(program)]
    environment = {**os.environ, **QUIET, "HOME": str(folder)}
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


# --- Files that no tool wrote for us: by the descriptions of their formats


def imported(folder: Path, name: str, content: Any, agent: str = AGENT) -> tuple[Verdicts, Any]:
    """Import a file, run its pack with the agent, and return the verdicts and the notes."""
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text)
    shutil.copy(PEERS / "agent.py", folder)
    pack = folder / "imported.eval.toml"
    _, notes = import_suite(folder / name, pack, agent=agent)
    run = run_pack([pack], RunOptions(output=str(folder / "results")))
    return {case.id: case.status == "pass" for case in run.cases}, notes


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


SAMPLES = lines(
    {"input": [{"role": "user", "content": "Refund 7"}], "ideal": ["Order 7", "Done"]},
    {"input": "Refund 7", "ideal": "refunded"},
    {"input": "Refund 9", "ideal": "I cannot"},
)


def test_samples_of_openai_evals_are_matched_at_the_beginning(tmp_path: Path):
    verdicts, notes = imported(tmp_path, "samples.jsonl", SAMPLES)
    assert verdicts == {"case-1": True, "case-2": False, "case-3": True}
    assert notes == []


@pytest.mark.parametrize("ideal", ["", [], ["Order 7", ""], None])
def test_a_sample_that_decides_nothing_is_left_out_and_named(tmp_path: Path, ideal: Any):
    # In OpenAI's evals every output begins with an empty text, and none with one of no texts.
    samples = SAMPLES + lines({"input": "Refund 7", "ideal": ideal})
    verdicts, notes = imported(tmp_path, "samples.jsonl", samples)
    assert verdicts == {"case-1": True, "case-2": False, "case-3": True}
    assert notes == [
        "1 x case without a check that can be carried over",
        "1 x ideal without a text, which decides nothing",
    ]


REGISTRY = """
refunds:
  id: refunds.dev.v0
refunds.dev.v0:
  class: evals.elsuite.basic.includes:Includes
  args: {samples_jsonl: samples.jsonl}
graded.v0:
  class: evals.elsuite.modelgraded.classify:ModelBasedClassify
  args: {samples_jsonl: samples.jsonl}
"""


def test_the_registry_of_openai_evals_names_the_class(tmp_path: Path):
    (tmp_path / "samples.jsonl").write_text(SAMPLES)
    verdicts, notes = imported(tmp_path, "refunds.yaml", REGISTRY)
    assert set(verdicts.values()) == {True}
    assert notes == ["1 x eval class ModelBasedClassify"]


LOOP = """
import json, openai

TOOLS = {"find": lambda order: f"order {order}", "refund": lambda order: "refunded"}
SKIPPED = ()

def agent(text):
    client, messages = openai.OpenAI(api_key="x"), [{"role": "user", "content": text}]
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS]
    while True:
        reply = client.chat.completions.create(model="m", messages=messages, tools=tools)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            result = "" if call.function.name in SKIPPED else TOOLS[call.function.name](**arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
"""


@pytest.mark.parametrize("works", [True, False])
def test_calls_of_one_message_of_langsmith_are_parallel(tmp_path: Path, *, works: bool):
    # The broken agent runs the first call of a message only.
    code = LOOP if works else LOOP.replace("in message.tool_calls:", "in message.tool_calls[:1]:")
    (tmp_path / "loop.py").write_text(code)
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": '{"order": 7}'}}
        for name in ("find", "refund")
    ]
    messages = [
        {"role": "user", "content": "Refund 7"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "assistant", "content": "Done."},
    ]
    example = {"inputs": {"messages": messages[:1]}, "outputs": {"messages": messages}}
    verdicts, notes = imported(tmp_path, "examples.jsonl", lines(example), "loop.py:agent")
    assert (verdicts, notes) == ({"case-1": works}, [])


@pytest.mark.parametrize("works", [True, False])
def test_a_trajectory_of_langsmith_is_the_script_of_the_agent(tmp_path: Path, *, works: bool):
    # The broken agent has lost a tool.
    code = LOOP if works else LOOP.replace('"refund": lambda order: "refunded"', "")
    (tmp_path / "loop.py").write_text(code)
    examples = (PEERS / "written" / "langsmith.jsonl").read_text()
    verdicts, notes = imported(tmp_path, "examples.jsonl", examples, "loop.py:agent")
    # The messages have the forms of LangChain, of its constructors and of OpenAI.
    assert verdicts == {"case-1": works, "case-2": works, "case-3": works}
    assert notes == []


def test_answers_of_langsmith_are_compared(tmp_path: Path):
    rows = [
        {"inputs": {"q": "Refund 7"}, "outputs": {"a": "Order 7 is refunded."}},
        {"inputs": {"q": "Refund 9"}, "outputs": {"a": "Order 9 is refunded."}},
    ]
    assert imported(tmp_path, "examples.json", rows)[0] == {"case-1": True, "case-2": False}


# --- What is not carried over


def config(*assertions: Any, **test: Any) -> dict[str, Any]:
    tests = [{"vars": {"q": "Refund 7"}, "assert": [*assertions], **test}]
    return {"prompts": ["{{q}}"], "providers": ["echo"], "tests": tests}


CONTAINS = {"type": "contains", "value": "refunded"}
PROVIDER = "1 x provider (the agent takes its place)"
NAMED: dict[str, tuple[Any, str]] = {
    "a threshold": (
        config(CONTAINS, threshold=0.5),
        "1 x threshold of a test (all assertions must hold)",
    ),
    "a set with a threshold": (
        config(CONTAINS, {"type": "assert-set", "threshold": 0.5, "assert": [CONTAINS]}),
        "1 x assert-set with a threshold",
    ),
    "no weight": (
        config(CONTAINS, {**CONTAINS, "weight": 0}),
        "1 x contains of weight 0, which decides nothing",
    ),
    "a pattern of nothing": (
        config(CONTAINS, {"type": "regex", "value": ".*"}),
        "1 x check that a pack refuses",
    ),
    "a pattern of JavaScript only": (
        config(CONTAINS, {"type": "regex", "value": "[^]x("}),
        "1 x assertion regex of this value",
    ),
    "JSON of another schema": (
        config(CONTAINS, {"type": "not-is-json", "value": {"type": "object"}}),
        "1 x assertion not-is-json of this value",
    ),
    "a template with logic": (
        {**config(CONTAINS), "prompts": ["{{q}}", "{% if q %}{{q}}{% endif %}"]},
        "1 x case whose prompt has filters or logic",
    ),
    "scenarios": ({**config(CONTAINS), "scenarios": [{}, {}]}, "2 x scenario"),
    "only code": (
        {"prompts": ["{{q}}"], "providers": [], "tests": [
            *config(CONTAINS)["tests"],
            *config({"type": "python", "value": "True"})["tests"],
        ]},
        "1 x case without a check that can be carried over",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_carried_over_is_named(tmp_path: Path, name: str):
    content, note = NAMED[name]
    verdicts, notes = imported(tmp_path, "config.json", content)
    assert any(line.startswith(note) for line in notes), notes
    assert set(verdicts.values()) == {True}


def test_a_case_names_what_it_lost(tmp_path: Path):
    imported(tmp_path, "config.json", config(CONTAINS, {"type": "similar", "value": "x"}))
    assert 'not_carried = ["assertion similar"]' in (tmp_path / "imported.eval.toml").read_text()


def test_a_verdict_that_differs_from_the_log_is_named(tmp_path: Path):
    log = json.loads((PEERS / "written" / "inspect-match-end.json").read_text())
    sample = next(sample for sample in log["samples"] if sample["id"] == "refunded")
    sample["scores"]["match"]["value"] = "C"
    _, notes = imported(tmp_path, "log.json", log, "")
    assert notes == ["verdict of refunded: it was pass, and is fail here"]


def test_a_question_for_a_judge_becomes_a_rubric_that_is_not_run_without_one(tmp_path: Path):
    content = config({"type": "llm-rubric", "value": "Is it polite?"})
    assert imported(tmp_path, "config.json", content)[0] == {"case-1": False}
    assert 'prompt = "Is it polite?"' in (tmp_path / "imported.eval.toml").read_text()


CSV = """q,__expected,__expected2,__description
Refund 7,Order 7 is refunded.,contains: refunded,equal
Refund 9,"contains-any: refunded, cancelled",,wrong
Refund 9,not-contains: refunded,,refused
"""


def test_tests_of_promptfoo_are_read_from_csv(tmp_path: Path):
    (tmp_path / "tests.csv").write_text(CSV)
    content = {**config(), "tests": "file://tests.csv"}
    verdicts, notes = imported(tmp_path, "config.json", content)
    assert verdicts == {"equal": True, "wrong": False, "refused": True}
    assert notes == [PROVIDER]


WRONG = {
    "nothing that it knows": ("x.json", {"a": 1}, "unknown format of an eval suite"),
    "another type of file": ("x.txt", "a", "unsupported file type '.txt'"),
    "no case": ("x.json", {"prompts": ["a"], "providers": [], "tests": []}, "no case to import"),
    "no archive": ("x.eval", "a", "not a log of Inspect"),
    "no samples": (
        "x.yaml",
        "e.v0: {class: 'evals.elsuite.basic.match:Match', args: {samples_jsonl: s.jsonl}}",
        "samples_jsonl names a missing file",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_imported_is_an_error(tmp_path: Path, name: str):
    file, content, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        imported(tmp_path, file, content)


def test_a_suite_without_outputs_needs_an_agent(tmp_path: Path):
    with pytest.raises(UsageError, match="its cases need an agent"):
        imported(tmp_path, "config.json", config(CONTAINS), "")


def test_an_existing_pack_is_not_overwritten(tmp_path: Path):
    imported(tmp_path, "config.json", config(CONTAINS))
    with pytest.raises(UsageError, match="exists already"):
        import_suite(tmp_path / "config.json", tmp_path / "imported.eval.toml", agent=AGENT)
