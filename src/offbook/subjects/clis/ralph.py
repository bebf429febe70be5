"""Ralph, an orchestrator of others: it calls an agent until the work is done, and we are the agent.

The agent that it is given asks the model at the endpoint once a call, and prints the answer. So
a script says what the agent says, iteration by iteration, and the loop around it is the real one.
What became of it is told by what happened: the exit code of the PyPI package (1.2.3) is 0 however
it ended.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Unpack

from offbook.exchange.messages import join_text
from offbook.subjects.clis.cli import CliAgent, ClientPackage, CliOptions
from offbook.trace.agent_output import has_completion_promise, parse_event_tags
from offbook.trace.events import (
    ERROR,
    EXIT_CODES,
    ITERATION,
    LOOP_START,
    PUBLISH,
    REPLY,
    REQUEST,
    TERMINATION,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.subjects.process import ProcessResult
    from offbook.subjects.subject import RunContext
    from offbook.trace.events import Event

HAT = "ralph"
AGENT = """\
import json, os, signal, sys, urllib.error, urllib.request
body = {"model": "ralph", "messages": [{"role": "user", "content": sys.argv[-1]}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode())
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        print(json.load(answer)["choices"][0]["message"]["content"])
except urllib.error.HTTPError as error:
    if error.headers["x-should-retry"] == "false":  # the script is over, and so is the loop
        os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(error.read().decode())
"""
# Where an agent fails, it would fall back to any other that is installed, and to its provider.
OTHERS = ("acp", "claude", "gemini", "q", "qchat")
CONFIG = "adapters:\n" + "".join(f"  {name}: {{enabled: false}}\n" for name in OTHERS)


class Ralph(CliAgent):
    """The orchestrator `ralph` as a subject: `offbook.drive(Ralph(max_iterations=3))`.

    Its prompt is a task; each reply of the script is what its agent prints in one iteration. The
    trace has its iterations, the events that the agent wrote, and why the loop really ended. A
    verdict says whether its exit code tells the same.
    """

    name = "ralph"
    client = ClientPackage("Ralph", "ralph", "ralph-orchestrator", "1.2.3", manager="pip")

    def __init__(
        self,
        *,
        max_iterations: int = 5,
        promise: str = "LOOP_COMPLETE",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._most = max_iterations
        self._promise = promise
        self._begun = 0.0
        self._calls: list[str | None] = []
        self._found: list[Verdict] = []

    async def open(self, stage: RunContext) -> None:
        """Hear what its agent is asked, and answers."""
        await super().open(stage)
        for name in (REQUEST, REPLY, ERROR):
            stage.hub.subscribe(self._hear, name)

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it keeps no sessions
        """`ralph run`, with the one agent whose command can be chosen."""
        options = ["--config", str(self.home / "ralph.yml"), "--agent", "kiro", "--no-git"]
        options += ["--no-archive", "--max-iterations", str(self._most)]
        options += ["--completion-promise", self._promise]
        return [self.program, "run", *options, *self.arguments, "--prompt-text", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Where its agent is, and where that one finds its model."""
        return {**super().environment(endpoint), "RALPH_KIRO_COMMAND": str(self.home / "agent")}

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - the agent reads it from the environment
        """The agent, and the word that there is no other."""
        return {"agent": f"#!{sys.executable} -IS\n{AGENT}", "ralph.yml": CONFIG}

    async def prompt(self, text: str) -> None:
        """Let it work on this task, and tell what came of it."""
        self._begun = time.monotonic()
        self._calls = []
        about = {"prompt_file": "", "max_iterations": self._most, "ux_mode": "cli"}
        self.stage.hub.emit(LOOP_START, about)
        self.stage.hub.emit(PUBLISH, {"topic": "task.start", "payload": text})
        await super().prompt(text)

    def _hear(self, event: Event) -> None:
        if event.event == REQUEST:
            self._calls.append(None)
            elapsed = int((time.monotonic() - self._begun) * 1000)
            about = {"n": len(self._calls), "elapsed_ms": elapsed, "hat": HAT}
            self.stage.hub.emit(ITERATION, about)
        elif event.event == REPLY and self._calls:
            text = self._calls[-1] = join_text(event.data["blocks"])
            for tag in parse_event_tags(text):
                about = {"topic": tag.topic, "payload": tag.payload, "source": HAT}
                target = {"target": tag.target} if tag.target else {}
                self.stage.hub.emit(PUBLISH, about | target)

    def emit_result(self, stage: RunContext, ended: ProcessResult) -> None:
        """Besides what it printed, why the loop ended, and whether its exit code says so."""
        super().emit_result(stage, ended)
        reason = self._explain(ended)
        code = EXIT_CODES[reason]
        about: dict[str, Any] = {"reason": reason, "iterations": len(self._calls)}
        seconds = round(time.monotonic() - self._begun, 3)
        stage.hub.emit(
            TERMINATION,
            {**about, "elapsed_secs": seconds, "exit_code": code, "claimed_exit_code": ended.code},
        )
        told = f"it ended with {ended.code}, though the loop ended by {reason}"
        self._found.append(
            Verdict("exit code of ralph", "pass", "", code, ended.code)
            if ended.code == code
            else Verdict("exit code of ralph", "fail", told, code, ended.code, about)
        )

    def _explain(self, ended: ProcessResult) -> str:
        """Why the loop ended, judged by what its agent said last."""
        last = self._calls[-1] if self._calls else None
        if ended.timed_out:
            return "MaxRuntime"
        if last is not None and has_completion_promise(last, self._promise):
            return "CompletionPromise"
        if len(self._calls) >= self._most:
            return "MaxIterations"
        return "ConsecutiveFailures" if last is None else "Stopped"

    def verdicts(self) -> Iterable[Verdict]:
        """Whether its exit codes were true."""
        return self._found
