"""Real runs whose traces the page has to show: one for each subject, and five that fail."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offbook import Cassette, Recording, call, drive, say, session, when
from offbook.clis import Command
from offbook.errors import OffbookError
from offbook.exchange import Reply, Request, Text
from offbook.patterns import Cell, create_harness, default, pattern
from offbook.trace import record_trace

AGENT = r"""
import json, os, sys, urllib.request

def ask(*messages):
    body = json.dumps({"model": "m", "max_tokens": 50, "messages": messages}).encode()
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    headers = {"content-type": "application/json", "x-api-key": "k"}
    headers["anthropic-version"] = "2023-06-01"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as reply:
        return json.load(reply)

print("\x1b[1;32mready\x1b[0m", file=sys.stderr, flush=True)
print(ask({"role": "user", "content": "Say hello"})["content"][0]["text"])
if len(sys.argv) > 1:
    import time
    time.sleep(60)
"""


def run_session(path: Path) -> None:
    """A session that passes: two turns, a file that is written and edited."""
    with session(trace=path, cwd=path.parent) as rehearsal:
        rehearsal.run(
            when(
                "Greet me",
                [
                    call("bash", {"command": 'echo \'{"greeting": ["hi", null]}\''}),
                    call("write", {"path": "a.txt", "content": "one\ntwo\n"}),
                    say("Done."),
                ],
            ),
            when("Change it", [call("edit", EDIT), say("Changed.")]),
        )


EDIT = {"path": "a.txt", "old": "two", "new": "three"}


def run_framework(path: Path) -> None:
    """An agent of pydantic-ai with a tool."""
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    model = AnthropicModel("claude-test", provider=AnthropicProvider(api_key="k"))
    agent = Agent(model, system_prompt="You sell kettles.")

    @agent.tool_plain
    def find_order(number: int) -> dict[str, Any]:
        """Return an order."""
        return {"number": number, "items": ["kettle"]}

    script = when("Refund order 7", [call("find_order", {"number": 7}), say("Found it.")])
    drive(agent, trace=path).run(script)


def run_command(path: Path, *arguments: str, deadline: float = 60) -> None:
    """A program of its own, over the wire, with coloured output."""
    agent = path.parent / "agent.py"
    agent.write_text(AGENT)
    command = Command([sys.executable, str(agent), *arguments], deadline=deadline)
    with contextlib.suppress(OffbookError), drive(command, trace=path) as rehearsal:
        rehearsal.run(when("Say hello", [say("Hello.")]))


def run_timeout(path: Path) -> None:
    """A program that does not end within its deadline."""
    run_command(path, "sleep", deadline=2)


def run_loop(path: Path) -> None:
    """A hat loop: the planner hands over to the builder."""
    from offbook.workflows import Workspaces, cleanup, run, setup

    name = f"viewer-{os.getpid()}"  # several processes make these traces at once
    setup(name)
    try:
        run(
            name,
            "Build a kettle",
            mock_responses=[
                {"hat": "planner", "output": '<event topic="build.task">a lid</event>'},
                {"hat": "builder", "output": '<event topic="build.done">a lid</event>'},
                {"hat": "planner", "output": "LOOP_COMPLETE"},
            ],
        )
        path.write_bytes(Workspaces().find(name).recorded_session.read_bytes())
    finally:
        cleanup(name)


@pattern
def counter(value: Cell[int] = default(0)) -> dict[str, Any]:
    """A counter whose double is computed."""
    return {"value": value}


def run_pattern(path: Path) -> None:
    """A pattern whose cell is written twice."""
    with record_trace(path, subject="pattern") as hub, create_harness(hub=hub) as harness:
        loaded = harness.load(counter)
        loaded.cells.value.set(3)
        loaded.cells.value.set(4)


def run_mismatch(path: Path) -> None:
    """A replay with a request that was not recorded."""
    cassette = path.parent / "chat.yaml"
    cassette.unlink(missing_ok=True)
    with Recording(Polite(), cassette) as source, session(source=source) as rehearsal:
        rehearsal.run("Refund order 7")
    with (
        contextlib.suppress(OffbookError),
        session(source=Cassette(cassette), trace=path) as rehearsal,
    ):
        rehearsal.run("Refund order 8")


class Polite:
    """A model that says the same to everybody."""

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - the protocol
        return Reply((Text("Your refund is on its way."),))


def run_missing_result(path: Path) -> None:
    """An agent that never sends the result of a call."""

    def forgetful(prompt: str) -> str:
        import anthropic

        client = anthropic.Anthropic(api_key="k")
        tools: Any = [{"name": "find_order", "input_schema": {"type": "object"}}]
        messages: Any = [{"role": "user", "content": prompt}]
        client.messages.create(model="m", max_tokens=9, messages=messages, tools=tools)
        return "I found it."

    with contextlib.suppress(OffbookError), drive(forgetful, trace=path) as rehearsal:
        rehearsal.run(when("Find order 7", [call("find_order", {"number": 7})]))


def run_blocked(path: Path) -> None:
    """A hook blocks the tool that the model calls, and the script expected it to run."""

    def guard(api: Any) -> None:
        @api.on("tool_call")
        def block(event: Any, ctx: Any) -> Any:
            if event.tool == "bash":
                return {"block": True, "reason": "no shell in this project"}
            return None

    script = when(
        "Clean up",
        [call("bash", {"command": "rm -rf build"}).then(expect_output), say("Removed.")],
    )
    with (
        contextlib.suppress(AssertionError, OffbookError),
        session(extensions=[guard], trace=path) as rehearsal,
    ):
        rehearsal.run(script)


def expect_output(result: Any) -> None:
    assert "removed" in result.text, f"expected the output of rm, got {result.text!r}"


JUDGE_PACK = """
version = 1
id = "manners"

[[fixtures]]
id = "script"
kind = "playbook"
path = "refund.yaml"

[[rubrics]]
id = "politeness"
kind = "llm-judge"
prompt = "Is the answer polite to the customer?"
judge = { source = "judge.jsonl" }
thresholds = { min-score = 0.7 }

[[cases]]
id = "refund"
name = "A refund that is refused"
subject = "agent.py:agent"
playbook = "script"
rubrics = ["politeness"]
"""
JUDGE_FILES = {
    "pack.eval.toml": JUDGE_PACK,
    "refund.yaml": "- when: Refund order 7\n  do:\n    - say: No. It is your own fault.\n",
    "judge.jsonl": json.dumps(
        {"text": json.dumps({"reasoning": "The answer blames the customer.", "score": 1})}
    )
    + "\n",
    "agent.py": """
import anthropic

def agent(prompt):
    client = anthropic.Anthropic(api_key="k")
    messages = [{"role": "user", "content": prompt}]
    return client.messages.create(model="m", max_tokens=50, messages=messages).content[0].text
""",
}


def run_judge(path: Path) -> None:
    """An eval run whose scripted judge gives an answer a low score; PATH becomes its folder."""
    folder = path.parent
    for name, text in JUDGE_FILES.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-c", "from offbook.surfaces.cli import main; main()"]
    command += ["eval", "run", "pack.eval.toml", "--output", "run"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=300)
    assert ended.returncode == 1, ended


SUBJECTS: dict[str, Callable[[Path], None]] = {
    "session": run_session,
    "framework": run_framework,
    "command": run_command,
    "loop": run_loop,
    "pattern": run_pattern,
}
FAILURES: dict[str, Callable[[Path], None]] = {
    "mismatch": run_mismatch,
    "missing result": run_missing_result,
    "blocked tool": run_blocked,
    "timeout": run_timeout,
    "judge": run_judge,
}


def main(folder: Path) -> None:
    """Write the traces of all runs to FOLDER/NAME/trace.jsonl."""
    for name, run in {**SUBJECTS, **FAILURES}.items():
        path = folder / name / "trace.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        run(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
