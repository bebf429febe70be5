"""Ralph, an orchestrator: it runs an agent in a loop until the task is done.

The loop is the real one; the agent in it is ours. That agent sends each prompt to the model and
prints the reply, so a script defines what the agent says in each iteration. The termination reason
is derived from what happened, because the PyPI package (1.2.3) exits with 0 in all cases.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, ClassVar, Unpack

from offbook.exchange.messages import join_text
from offbook.subjects.clis.cli import CliAgent, ClientPackage, CliOptions
from offbook.trace.agent_output import scan_output
from offbook.trace.events import (
    ERROR,
    EXIT_CODES,
    REPLY,
    REQUEST,
    UNSET,
    IterationData,
    LoopStartData,
    PublishData,
    TerminationData,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.subjects.process import ProcessResult
    from offbook.subjects.subject import RunContext
    from offbook.trace.events import Event

HAT = "ralph"
# The agent. It has no dependencies, because it runs with `-IS`, without any package.
AGENT = """\
import json, os, signal, sys, urllib.error, urllib.request
body = {"model": "ralph", "messages": [{"role": "user", "content": sys.argv[-1]}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode())
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        print(json.load(answer)["choices"][0]["message"]["content"])
except urllib.error.HTTPError as error:
    if error.headers["x-should-retry"] == "false":  # the script is exhausted: end the loop
        os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(error.read().decode())
"""
# If its agent fails, Ralph falls back to any other that is installed, and so to a real provider.
OTHER_ADAPTERS = ("acp", "claude", "gemini", "q", "qchat")
CONFIG = "adapters:\n" + "".join(f"  {name}: {{enabled: false}}\n" for name in OTHER_ADAPTERS)


class Ralph(CliAgent):
    """The orchestrator `ralph` as a subject: `offbook.drive(Ralph(max_iterations=3))`.

    Its prompt is a task, and each reply of the script is the agent's output in one iteration. The
    trace has the iterations, the events that the agent published, and the termination reason. A
    verdict compares the exit code with that reason.
    """

    name = "ralph"
    client = ClientPackage("Ralph", "ralph", "ralph-orchestrator", "1.2.3", manager="pip")
    request_metadata: ClassVar[dict[str, str]] = {"hat": HAT}

    def __init__(
        self,
        *,
        max_iterations: int = 5,
        promise: str = "LOOP_COMPLETE",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._max_iterations = max_iterations
        self._promise = promise
        self._started = 0.0
        self._replies: list[str | None] = []  # one for each iteration; None until it arrives
        self._verdicts: list[Verdict] = []

    async def open(self, context: RunContext) -> None:
        """Subscribe to the requests and replies of the agent."""
        await super().open(context)
        for name in (REQUEST, REPLY, ERROR):
            context.hub.subscribe(self._on_model_event, name)

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it has no sessions
        """Return `ralph run …` with `kiro`, the only agent whose command can be configured."""
        options = ["--config", str(self.home / "ralph.yml"), "--agent", "kiro", "--no-git"]
        options += ["--no-archive", "--max-iterations", str(self._max_iterations)]
        options += ["--completion-promise", self._promise]
        return [self.program, "run", *options, *self.arguments, "--prompt-text", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment, with the path of our agent."""
        return {**super().environment(endpoint), "RALPH_KIRO_COMMAND": str(self.home / "agent")}

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - the base URL is in the environment
        """Return our agent, and a configuration that disables all others."""
        return {"agent": f"#!{sys.executable} -IS\n{AGENT}", "ralph.yml": CONFIG}

    async def prompt(self, text: str) -> str | None:
        """Run the loop for this task; return its output."""
        self._started = time.monotonic()
        self._replies = []
        self.context.hub.emit_data(LoopStartData(self._max_iterations))
        self.context.hub.emit_data(PublishData("task.start", text))
        return await super().prompt(text)

    def _on_model_event(self, event: Event) -> None:
        """Emit a request as an iteration, and the event tags of a reply as published events."""
        if event.event == REQUEST:
            self._replies.append(None)
            elapsed = int((time.monotonic() - self._started) * 1000)
            self.context.hub.emit_data(IterationData(len(self._replies), elapsed, HAT))
        elif event.event == REPLY and self._replies:
            text = self._replies[-1] = join_text(event.data["blocks"])
            for tag in scan_output(text).tags:
                data = PublishData(tag.topic, tag.payload, HAT, tag.target or UNSET)
                self.context.hub.emit_data(data)

    def emit_result(self, context: RunContext, result: ProcessResult) -> None:
        """Emit the output and the termination, and compare the exit code with it."""
        super().emit_result(context, result)
        reason = self._termination_reason(result)
        code = EXIT_CODES[reason]
        seconds = round(time.monotonic() - self._started, 3)
        context.hub.emit_data(
            TerminationData(reason, len(self._replies), seconds, code, result.code)
        )
        message = f"exit code {result.code}, but the loop ended with {reason}"
        ended = {"reason": reason, "iterations": len(self._replies)}
        self._verdicts.append(
            Verdict("exit code of ralph", "pass", "", code, result.code)
            if result.code == code
            else Verdict("exit code of ralph", "fail", message, code, result.code, ended)
        )

    def _termination_reason(self, result: ProcessResult) -> str:
        last = self._replies[-1] if self._replies else None
        # The order matters: the last allowed iteration may also have kept the promise.
        if result.timed_out:
            return "MaxRuntime"
        if last is not None and scan_output(last).ends_with(self._promise):
            return "CompletionPromise"
        if len(self._replies) >= self._max_iterations:
            return "MaxIterations"
        return "ConsecutiveFailures" if last is None else "Stopped"

    def verdicts(self) -> Iterable[Verdict]:
        """Return a verdict on each exit code."""
        return self._verdicts
