"""A pattern as the subject of checks, golden transcripts, eval packs and explore.

Each holds for a pattern that works, and fails for a broken one.
"""

# pyright: basic, reportAttributeAccessIssue=false
# Patterns take and return any value.

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook import Trace, drive, say, when
from offbook.errors import CheckFailed, InvariantBroken, OffbookWarning, UsageError
from offbook.evals import RunOptions, run_pack
from offbook.explore import explore
from offbook.patterns import create_harness, load_pattern
from offbook.testing import assert_golden_transcript

SUMMARISER = """
import openai
from offbook.patterns import Cell, default, handler, pattern

@handler
async def summarise(event, text, title, status):
    status.set("working")
    client = openai.AsyncOpenAI(api_key="none", max_retries=0)
    reply = await client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "user", "content": f"Give a title: {text.get()}"}],
    )
    words = (reply.choices[0].message.content or "untitled").split()
    title.set(" ".join(words[:5])[:40])
    status.set("done")

@pattern
def summariser(
    text: Cell[str] = default(""),
    title: Cell[str] = default(""),
    status: Cell[str] = default("idle"),
):
    return {
        "title": title,
        "status": status,
        "summarise": summarise(text=text, title=title, status=status),
    }

agent = summariser.as_agent("summarise", output="title", prompt="text")
"""
SCRIPT = when("A long text", [say("Tea and cake")])


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Write the pattern with a change; return its agent."""

    def write(old: str = "", new: str = "") -> Any:
        assert old in SUMMARISER
        (tmp_path / "summariser.py").write_text(SUMMARISER.replace(old, new, 1))
        pattern = load_pattern(tmp_path / "summariser.py")
        return pattern.as_agent("summarise", output="title", prompt="text")

    return write


def run_agent(agent: Any, **options: Any) -> Any:
    with drive(agent, **options) as rehearsal:
        return rehearsal.run(SCRIPT)


# --- Checks

WRITES = [
    {"event": "cell.write", "data": {"cell": "summariser.status", "value": "working"}},
    {"event": "cell.write", "data": {"cell": "summariser.title", "value": "Tea and cake"}},
    {"event": "cell.write", "data": {"cell": "summariser.status", "value": "done"}},
]


def test_the_output_of_a_pattern_is_the_answer_of_the_agent(make: Any):
    assert run_agent(make()).output == "Tea and cake"


def test_a_golden_transcript_compares_the_cells_of_a_pattern(make: Any):
    def transcript(agent: Any) -> Any:
        events = run_agent(agent).events.all
        return [
            {"event": each.event, "data": each.data}
            for each in events
            if each.event == "cell.write"
        ]

    assert_golden_transcript(WRITES, transcript(make()))
    with pytest.raises(CheckFailed, match="Tea and"):
        assert_golden_transcript(WRITES, transcript(make("[:5]", "[:2]")))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"stream": "sumarise", "output": "title"}, "did you mean 'summarise'"),
        ({"stream": "title", "output": "title"}, "the output 'title' .* is not a stream"),
        ({"stream": "summarise", "output": "titel", "prompt": "text"}, "did you mean 'title'"),
        ({"stream": "summarise", "output": "title", "prompt": "txt"}, "did you mean 'text'"),
    ],
)
def test_an_agent_of_unknown_names_is_explained(
    make: Any, tmp_path: Path, options: dict[str, str], message: str
):
    make()
    agent = load_pattern(tmp_path / "summariser.py").as_agent(**options)
    with pytest.raises(UsageError, match=message):
        asyncio.run(agent("A long text")) if "prompt" not in options else run_agent(agent)


# --- Evals

PACK = """
version = 1
id = "titles"

[[fixtures]]
id = "script"
kind = "playbook"
path = "script.yaml"

[[rubrics]]
id = "short"

[[rubrics.assertions]]
kind = "output"
contains = "Tea and cake"

[[cases]]
id = "title"
subject = "summariser.py:agent"
playbook = "script"
rubrics = ["short"]
"""


@pytest.mark.parametrize("old, new, passed", [("", "", True), ("[:5]", "[:2]", False)])
def test_a_pattern_is_the_subject_of_an_eval_case(
    make: Any, tmp_path: Path, old: str, new: str, *, passed: bool
):
    make(old, new)
    (tmp_path / "script.yaml").write_text("- when: A long text\n  do:\n    - say: Tea and cake\n")
    (tmp_path / "titles.eval.toml").write_text(PACK)
    run = run_pack([tmp_path / "titles.eval.toml"], RunOptions(output=str(tmp_path / "out")))
    assert run.summary.passed_gate is passed
    assert bool(run.cases[0].failures) is not passed


# --- Explore


def is_short(run: Any, _world: Any) -> None:
    titles = [each.data["value"] for each in run.events.all if each.event == "cell.write"]
    assert all(len(title) <= 40 for title in titles), "a title of more than 40 characters"


def test_explore_finds_the_reply_that_breaks_a_pattern(make: Any):
    agent, broken = make(), make("words[:5])[:40]", "words)")
    with pytest.warns(OffbookWarning, match="the agent offers no tools"):
        explore(lambda: drive(agent), "A long text", is_short, runs=40)
    with pytest.raises(InvariantBroken, match="a title of more than 40 characters"):
        explore(lambda: drive(broken), "A long text", is_short, runs=200)


# --- The trace of a pattern without a model


def test_a_trace_has_the_cells_of_a_pattern_without_a_model(tmp_path: Path):
    (tmp_path / "counter.py").write_text(
        "from offbook.patterns import Cell, default, pattern\n"
        "@pattern\n"
        "def counter(value: Cell[int] = default(0)):\n"
        "    return {'value': value}\n"
    )
    with create_harness(trace=tmp_path / "trace.jsonl") as h:
        h.load(load_pattern(tmp_path / "counter.py")).cells.value.set(3)
    written = [each.data for each in Trace(tmp_path / "trace.jsonl") if each.event == "cell.write"]
    assert [(data["cell"], data["value"]) for data in written] == [("counter.value", 3)]
    shown = subprocess.run(
        [sys.executable, "-m", "offbook", "show", tmp_path / "trace.jsonl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "counter.value" in shown.stdout
