"""A trace rendered as a tree for the terminal.

    run 1 · session · 1 turn
    ├─ user "Refund order 7"
    │  ├─ 1. call refund {"id":7}
    │  │  └─ → error look it up first
    │  └─ 2. says "Sorry."
    └─ passed

On a terminal, `offbook show` adds durations and tokens: `2. says "Sorry." · 3 ms · 276 + 9 tokens`.

The tree is rendered while the trace is read. A node is drawn once the next one shows if it is the
last child of its parent, so a trace of any size needs the memory of one message of the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from offbook.errors import counted
from offbook.exchange.messages import strip_injected
from offbook.reports.styled_lines import (
    MAX_CHILDREN,
    EventTexts,
    Frame,
    Node,
    StyledLine,
    StyledText,
    describe_error,
    format_duration,
    format_tokens,
    join_texts,
    render_line,
)
from offbook.secrets import escape_controls
from offbook.trace.events import (
    AGENT_END,
    AGENT_ERROR,
    AGENT_PARTS,
    AGENT_START,
    CHANGE,
    CLI_CALL,
    ERROR,
    FAULT,
    ITERATION,
    LOOP_START,
    PERSON,
    PERSON_SAID,
    PROCESS_EXIT,
    PROCESS_OUTPUT,
    PROCESS_START,
    PUBLISH,
    REFUSED,
    REMOTE_TASK,
    REPLY,
    REQUEST,
    RUN_END,
    RUN_START,
    STEP_POST,
    STEP_PRE,
    TERMINAL_WRITE,
    TERMINATION,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_END,
    TOOL_ERROR,
    TOOL_RESULT,
    TOOL_START,
    VERDICT,
    WIRE,
    Event,
)
from offbook.trace.executions import same_result, to_result_content

VERDICT_MARKS = {
    "pass": ("✓", "ok"),
    "fail": ("✗", "error"),
    "error": ("✗", "error"),
    "warn": ("!", "warning"),
    "no_data": ("?", "warning"),
}


class Totals:
    """The model calls, tokens and cost of a run or an iteration, and when it started."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.replies = self.input = self.output = 0
        self.cost = 0.0

    def add_usage(self, data: dict[str, Any]) -> None:
        """Count a reply of the model."""
        usage: dict[str, int] = data.get("usage") or {}
        self.replies += 1
        self.input += usage.get("input", 0)
        self.output += usage.get("output", 0)

    def describe(self, now: int) -> list[str]:
        """Return the duration and the counts; a count of zero is left out."""
        parts = [format_duration(now - self.start)]
        if self.replies:
            parts.append(counted(self.replies, "model call"))
        if self.input or self.output:
            parts.append(format_tokens(self.input, self.output))
        if self.cost:
            parts.append(f"${self.cost:.4f}")
        return parts


class TraceTree:
    """Renders events as a tree of runs, iterations, turns, messages of the model and tool calls.

    `full` shows long texts and values in full. `brief` shows the first line of errors and no output
    of processes, for a report that has their whole message elsewhere. `times` shows durations,
    tokens and costs.
    """

    def __init__(self, *, full: bool = False, brief: bool = False, times: bool = False) -> None:
        self._texts = EventTexts(full=full)
        self._brief = brief
        self._times = times
        self._now = 0  # the time of the present event
        self._totals: list[Totals] = []  # of the run and of the iteration that are open
        self._asked: dict[str, int] = {}  # the time of open requests by exchange
        self._called: dict[str, int] = {}  # the time of open calls by id
        self._steps: dict[tuple[str, str], tuple[Node, int]] = {}  # open steps, and their start
        self._top = Frame("", root=True)
        self._run: Frame | None = None
        self._iteration: Frame | None = None
        self._turn: Frame | None = None
        self._run_count = 0
        self._prompt: str | None = None
        self._said = ""  # the last text of the model
        self._tool_error = ""  # the last tool that raised, and what
        self._raised: set[str] = set()  # the calls whose tools raised
        self._step: Node | None = None
        # Open calls by id; None once the node is drawn and can take no more children.
        self._calls: dict[str, Node | None] = {}
        self._blocked: set[str] = set()
        self._inputs: dict[str, Any] = {}  # of the calls, as the model made them
        self._observed: set[str] = set()  # the calls whose tools are seen, and did not start yet
        self._ended: dict[str, dict[str, Any]] = {}  # whose results the model has not got yet
        self._own: list[tuple[str, Node]] = []  # running tools that the model did not call
        self._changed_ids: dict[str, str] = {}
        self._handlers = {
            RUN_START: self._on_run_start,
            RUN_END: self._on_run_end,
            AGENT_START: self._on_agent_start,
            AGENT_END: self._on_agent_end,
            AGENT_ERROR: self._on_agent_error,
            REQUEST: self._on_request,
            REPLY: self._on_reply,
            ERROR: self._on_model_error,
            TOOL_CALL: self._on_tool_call,
            TOOL_START: self._on_tool_start,
            TOOL_END: self._on_tool_end,
            TOOL_RESULT: self._on_tool_result,
            TOOL_BLOCKED: self._on_tool_blocked,
            TOOL_ERROR: self._on_tool_error,
            REFUSED: self._on_refused,
            PERSON: self._on_person,
            PERSON_SAID: self._on_person_said,
            FAULT: self._on_fault,
            VERDICT: self._on_verdict,
            WIRE: self._on_wire,
            LOOP_START: self._on_loop_start,
            ITERATION: self._on_iteration,
            "iteration.summary": self._on_iteration_summary,
            TERMINATION: self._on_termination,
            STEP_PRE: self._on_step_pre,
            STEP_POST: self._on_step_post,
        }
        # One line each, placed where it happened.
        self._describers = {
            CHANGE: self._texts.describe_change,
            CLI_CALL: self._texts.describe_cli_call,
            REMOTE_TASK: self._texts.describe_remote_task,
            PUBLISH: self._texts.describe_publish,
            PROCESS_START: self._texts.describe_start,
            PROCESS_EXIT: self._texts.describe_exit,
        }

    def render(self, events: Iterable[Event]) -> Iterator[StyledLine]:
        """Yield all lines of these events."""
        for event in events:
            self._now = event.ts
            try:
                lines = [*self._render_event(event)]
            except (AttributeError, KeyError, TypeError, ValueError):
                # The data does not have the shape of its name, as in a trace of another tool.
                lines = [*self._attach(self._texts.describe(event))]
            yield from lines
        yield from self._finish()

    def _render_event(self, event: Event) -> Iterator[StyledLine]:
        handler = self._handlers.get(event.event)
        if handler is not None:
            return handler(event.data)
        describe = self._describers.get(event.event)
        if describe is not None:
            return self._attach(describe(event.data))
        if event.event in {PROCESS_OUTPUT, TERMINAL_WRITE}:
            if self._brief:  # the message of a failed process has its output
                return iter(())
            return self._attach(self._texts.describe_output(event))
        kind, _, name = event.event.partition(".")
        if event.event == AGENT_PARTS:  # for the coverage, not for readers
            return iter(())
        if event.event == "session.command":
            self._said = ""  # a command has no answer
        if kind == "ui":
            return self._attach(self._texts.describe_ui(event.data))
        if kind == "hook" and name != "turn_end":
            return self._add(Node(StyledText(f"hook {name}", "faint")))
        return self._attach(self._texts.describe(event))

    def _finish(self) -> Iterator[StyledLine]:
        if self._run is not None:
            why = "before the end of the run: it was killed, or still runs"
            end = Node(StyledText(f"the trace ends here, {why}", "warning"))
            yield from self._close_run(end)
        yield from self._close_iteration()
        yield from self._top.flush(last=True)

    # --- Placement of nodes

    @property
    def _frame(self) -> Frame:
        return self._turn or self._iteration or self._run or self._top

    def _add(self, node: Node) -> Iterator[StyledLine]:
        """Add a node to the open frame; the nodes before it can take no more children."""
        self._step = None
        self._calls = dict.fromkeys(self._calls)
        # A step takes what happens in it. Of several open ones it is not known which.
        if len(self._steps) == 1:
            ((open_step, _),) = self._steps.values()
            if self._frame.is_pending(open_step) and len(open_step.children) < MAX_CHILDREN:
                open_step.add(node)
                return
        yield from self._frame.add(node)

    def _attach(self, node: Node) -> Iterator[StyledLine]:
        """Add a node to the only open call, else to the message of the model, else to the frame."""
        if self._step is None:
            yield from self._add(node)
            return
        open_calls = [call for call in self._calls.values() if call is not None]
        parent = open_calls[0] if len(open_calls) == 1 else self._step
        if len(parent.children) >= MAX_CHILDREN:
            # Drawn in parts: a tool that emits events without end must not fill the memory.
            parent = Node(StyledText("… continued", "faint"))
            yield from self._add(parent)
            self._step = parent
        parent.add(node)

    def _add_outcome(self, call_id: str, data: dict[str, Any], node: Node) -> Iterator[StyledLine]:
        """Add the outcome of a call to it; a call that is drawn already is named again."""
        call = self._calls.get(call_id)
        if call is not None:
            call.add(node)
            return
        tool = str(data.get("tool", "?"))
        yield from self._add(Node(StyledText(tool, "name"), " ", *node.spans))

    # --- Runs and turns

    def _on_run_start(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        yield from self._finish()
        self._run_count += 1
        self._said = ""
        self._totals = [Totals(self._now)]
        details = f" · {data.get('subject', '?')}"
        if (turns := data.get("turns")) is not None:  # a command decides itself what it asks
            details += f" · {counted(turns, 'turn')}"
        node = Node(StyledText(f"run {self._run_count}", "name"), details)
        yield from node.draw("", last=True, root=True)
        self._run = Frame("")

    def _on_run_end(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        if data.get("ok"):
            end = Node(StyledText("passed", "ok"), *self._describe_totals())
            # Agents usually return what the model said last.
            answer: Any = data.get("output", self._said)
            if answer != self._said and (answer or self._said):
                if answer is None:
                    shown = "nothing"
                elif isinstance(answer, str):
                    shown = self._texts.quote(answer)
                else:
                    shown = f"a value of type {answer['type']}"
                yield from self._close_turn()
                yield from self._add(Node(f"the agent returned {shown}"))
        else:
            error = str(data.get("error", ""))
            if self._tool_error.endswith(f" raised {error}"):
                error = self._tool_error.removesuffix(f" {error}")  # the tool's line has the reason
            # The counts first: the error may have several lines.
            counts = self._describe_totals()
            end = Node(
                StyledText("failed" if counts else "failed: ", "error"),
                *counts,
                *([StyledText(": ", "error")] if counts else []),
                self._shorten_error(error),
            )
        yield from self._add(end) if self._run is None else self._close_run(end)

    def _close_run(self, end: Node) -> Iterator[StyledLine]:
        yield from self._close_iteration()
        if self._run is not None:
            yield from self._run.add(end)
            yield from self._run.flush(last=True)
        self._run = None
        self._totals = []

    def _open_turn(self, prompt: str) -> Iterator[StyledLine]:
        yield from self._close_turn()
        node = Node(StyledText("user ", "name"), StyledText(self._texts.quote(prompt), "text"))
        self._turn = yield from self._open_frame(node)
        self._prompt = prompt

    def _open_frame(self, node: Node) -> Generator[StyledLine, None, Frame]:
        """Draw a node whose children follow, and return its frame."""
        parent = self._frame
        yield from parent.flush(last=False)
        # In a run, a turn is never the last child: the end of the run or iteration follows.
        yield from node.draw(parent.guide, last=False, root=parent.root)
        return Frame("" if parent.root else f"{parent.guide}│  ")

    def _close_turn(self) -> Iterator[StyledLine]:
        yield from self._add_unsent()
        if self._turn is not None:
            yield from self._turn.flush(last=True)
        self._turn = self._step = self._prompt = None
        self._calls.clear()
        self._inputs.clear()
        self._observed.clear()
        self._own.clear()
        self._blocked.clear()
        self._asked.clear()
        self._called.clear()
        self._steps.clear()

    # --- Loops and steps

    def _on_loop_start(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        limit = data.get("max_iterations")
        details = f" · at most {limit} iterations" if limit else ""
        return self._add(Node(StyledText("loop", "name"), details))

    def _on_iteration(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        yield from self._close_iteration()
        hat = f" · {data['hat']}" if data.get("hat") else ""
        node = Node(StyledText(f"iteration {data.get('n', '?')}", "name"), hat)
        self._iteration = yield from self._open_frame(node)
        self._totals = [*self._totals[:1], Totals(self._now)]

    def _on_iteration_summary(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        cost = float(data.get("cost_usd") or 0)
        for totals in self._totals:
            totals.cost += cost
        return self._add(Node(StyledText("cost ", "faint"), f"${cost:.4f}"))

    def _close_iteration(self) -> Iterator[StyledLine]:
        yield from self._close_turn()
        if self._iteration is not None:
            counts = self._totals.pop().describe(self._now) if self._totals else []
            # A last child, so that the guides of the turns above it end.
            text = " · ".join(["end of the iteration", *(counts if self._times else ())])
            yield from self._iteration.add(Node(StyledText(text, "faint")))
            yield from self._iteration.flush(last=True)
        self._iteration = None

    def _on_termination(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        yield from self._close_iteration()
        code = data.get("exit_code", 0)
        reason = str(data.get("reason", "?"))
        count = counted(data.get("iterations", "?"), "iteration")
        details = f" · {count} · exit code {code}"
        style = "ok" if code == 0 else "error"
        yield from self._add(Node(StyledText(f"ended: {reason}", style), details))

    def _on_step_pre(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        key = str(data.get("persona", "")), str(data["step_name"])
        arguments = [
            *(data.get("args") or ()),
            *([kwargs] if (kwargs := data.get("kwargs")) else ()),
        ]
        shown = " ".join(self._texts.shorten_json(argument) for argument in arguments)
        name = ".".join(filter(None, key))
        node = Node(
            "step ",
            StyledText(name, "name"),
            f" {self._texts.shorten(shown)}",
        )
        # Next to each other: a call of an earlier step may still get its result.
        yield from self._frame.add_beside(node)
        self._steps[key] = node, self._now

    def _on_step_post(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        key = str(data.get("persona", "")), str(data["step_name"])
        node, start = self._steps.pop(key, (None, self._now))
        outcome = Node(StyledText("→ ", "ok"), self._texts.shorten_json(data.get("output")))
        if "error" in data:
            error = self._texts.shorten(str(data["error"]))
            outcome = Node(StyledText("→ error ", "error"), error)
        outcome.spans += self._describe_details(format_duration(self._now - start))
        if node is not None and self._frame.is_pending(node):
            node.add(outcome)
            return
        name = ".".join(filter(None, key))
        node = Node("step ", StyledText(name, "name"), " ", *outcome.spans)
        yield from self._frame.add(node)

    def _on_agent_start(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        return self._open_turn(str(data.get("prompt", "")))

    def _on_agent_end(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        stop = data.get("stop", "stop")
        if stop != "stop":
            yield from self._add(Node(StyledText(f"the agent stopped: {stop}", "warning")))
        yield from self._close_turn()

    def _on_agent_error(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        error = self._shorten_error(describe_error(data))
        return self._add(Node(StyledText("agent error: ", "error"), error))

    # --- The model

    def _on_request(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        """Render the user messages that are new in a request; the others are drawn already."""
        for ours, theirs in data.get("metadata", {}).get("call_ids", {}).items():
            if self._changed_ids.get(ours) != theirs:
                self._changed_ids[ours] = theirs
                changed = StyledText("the client changed an id: ", "faint")
                yield from self._attach(Node(changed, f"{ours} became {theirs}"))
        self._asked[str(data.get("exchange", ""))] = self._now
        for message in data.get("new", ()):
            blocks = message.get("blocks", ())
            if not self._texts.full:
                blocks = [_without_injected(block) for block in blocks]
            text = join_texts(blocks)
            # A message without a text is one that the client wrote itself.
            if message.get("role") != "user" or not text or text == self._prompt:
                continue
            if self._calls:
                # A subagent, or a program that asks something else before it sends the result.
                quote = StyledText(self._texts.quote(text), "text")
                yield from self._add(Node(StyledText("asks meanwhile ", "name"), quote))
            else:
                yield from self._open_turn(text)

    def _on_reply(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        blocks: list[dict[str, Any]] = data.get("blocks", [])
        calls = [block for block in blocks if block.get("type") == "tool_call"]
        text = join_texts(blocks)
        self._said = text or self._said
        number = f"{data['step']}. " if data.get("step") else ""
        role = f"{data['role']} " if data.get("role") else ""
        head = (StyledText(number, "faint"), StyledText(role, "warning"))
        for totals in self._totals:
            totals.add_usage(data)
        usage: dict[str, int] = data.get("usage") or {}
        asked = self._asked.pop(str(data.get("exchange", "")), None)
        details = self._describe_details(
            "" if asked is None else format_duration(self._now - asked),
            format_tokens(usage.get("input", 0), usage.get("output", 0)) if usage else "",
        )
        # A single call without a text takes the line of the message.
        single = len(calls) == 1 and not text
        if single:
            step = Node(
                *head,
                *self._texts.describe_call(calls[0]["name"], calls[0].get("arguments")),
                *details,
            )
        elif text or not calls:
            quote = StyledText(self._texts.quote(text), "text")
            step = Node(*head, StyledText("says ", "name"), quote, *details)
        else:
            text = f"calls {len(calls)} tools at once"
            step = Node(*head, StyledText(text, "name"), *details)
        for block in blocks:
            if block.get("type") == "thinking":
                thought = self._texts.quote(block.get("text", ""))
                step.add(Node(StyledText("thinks ", "faint"), thought))
        yield from self._add(step)
        self._step = step
        for call in calls:
            node = Node(*self._texts.describe_call(call["name"], call.get("arguments")))
            self._calls[call["id"]] = step if single else step.add(node)

    def _on_model_error(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        error = describe_error(data)
        return self._add(Node(StyledText("model error: ", "error"), error))

    def _on_wire(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        sides = {side: data[side] for side in ("request", "response")}
        sizes = ", ".join(f"{side} {part['size']} bytes" for side, part in sides.items())
        node = Node(StyledText("wire ", "faint"), StyledText(sizes, "faint"))
        for part in sides.values() if self._texts.full else ():
            texts = [escape_controls(part[name]) for name in ("start", "end") if name in part]
            node.add(Node("\n…\n".join(texts).replace("␍\n", "\n").strip("\n")))
        # Not below a call of this exchange: the bytes are those of the message.
        if self._step is None:
            return self._add(node)
        self._step.add(node)
        return iter(())

    def _on_person(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        asked = str(data.get("tool") or data.get("question", ""))
        text = self._texts.shorten(f"{asked}: {data.get('answer', 'no answer')}")
        return self._add(Node(StyledText("person: ", "warning"), text))

    def _on_person_said(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        text = self._texts.shorten(str(data.get("text", "")))
        return self._add(Node(StyledText("person: ", "warning"), text))

    def _on_fault(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        name = f" of {data['name']}" if data.get("name") else ""
        text = f"{data['kind']}{name}, {data['place']} call {data['number']}"
        return self._add(Node(StyledText("fault: ", "warning"), text))

    def _shorten_error(self, error: str) -> str:
        return error.partition("\n")[0] if self._brief else error

    # --- Tools and verdicts

    def _on_tool_call(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        self._called[data.get("call_id", "")] = self._now
        self._inputs[data.get("call_id", "")] = data.get("input")
        if data.get("observed") is True:
            self._observed.add(data.get("call_id", ""))
        # The reply of the model has announced the call; a call without a reply gets its own node.
        if data.get("call_id") in self._calls:
            return
        node = Node(*self._texts.describe_call(data.get("tool", "?"), data.get("input")))
        yield from self._attach(node)
        self._calls[data.get("call_id", "")] = node
        self._step = self._step or node

    def _on_tool_start(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        """Render the start of a tool if the line of its call does not say it."""
        call_id, given = data.get("call_id", ""), data.get("input")
        self._observed.discard(call_id)
        if call_id in self._inputs:
            again = data.get("number", 1) != 1
            if again or given != self._inputs[call_id]:
                yield from self._add_input(call_id, data, "runs again with" if again else "")
            return
        node = Node(
            "runs ",
            *self._texts.describe_call(data.get("tool", "?"), given)[1:],
            StyledText(" (not called by the model)", "warning"),
        )
        yield from self._attach(node)
        self._own.append((str(data.get("tool")), node))

    def _add_input(
        self, call_id: str, data: dict[str, Any], label: str = ""
    ) -> Iterator[StyledLine]:
        given = self._texts.shorten_json(data.get("input"))
        node = Node(StyledText(f"{label or 'runs with'} ", "warning"), given)
        yield from self._add_outcome(call_id, data, node)

    def _on_tool_end(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        """Note the end of a tool; render it if the model never gets its result."""
        call_id = data.get("call_id", "")
        if call_id in self._inputs and data.get("number", 1) == 1:
            self._ended[call_id] = data  # until its result is sent
            return
        own = [entry for entry in self._own if entry[0] == data.get("tool")]
        if not own:
            yield from self._add_outcome(call_id, data, self._describe_end(data))
            return
        self._own.remove(own[0])
        own[0][1].add(self._describe_end(data))

    def _describe_end(self, data: dict[str, Any], note: str = "") -> Node:
        text = join_texts(data.get("content") or ()) or str(data.get("error") or "(nothing)")
        arrow = StyledText("→ error ", "error") if data.get("is_error") else StyledText("→ ", "ok")
        took = self._describe_details(format_duration(round(data.get("ms", 0))))
        notes = (StyledText(note, "warning"),) if note else ()
        return Node(arrow, self._texts.shorten(text), *notes, *took)

    def _add_unsent(self) -> Iterator[StyledLine]:
        """Render the ends of tools whose results were not sent to the model."""
        for call_id, data in self._ended.items():
            if call_id in self._raised:  # the error is shown already
                continue
            note = "" if data.get("ran") is not False else " (the framework refused the input)"
            end = self._describe_end(data, note or " (not sent to the model)")
            yield from self._add_outcome(call_id, data, end)
        self._ended.clear()

    def _on_tool_blocked(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        call_id = data.get("call_id", "")
        self._blocked.add(call_id)
        reason = self._texts.shorten(str(data.get("reason", "")))
        node = Node(StyledText("blocked: ", "warning"), reason)
        return self._add_outcome(call_id, data, node)

    def _on_tool_error(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        tool, error = str(data.get("tool", "?")), str(data.get("error", ""))
        self._tool_error = f"{tool} raised {error}"
        self._raised.add(data.get("call_id", ""))
        node = Node(StyledText(f"{tool} raised ", "error"), self._texts.shorten(error))
        return self._add_outcome(data.get("call_id", ""), data, node)

    def _on_tool_result(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        call_id = data.get("call_id", "")
        called = self._called.pop(call_id, None)
        ended = self._ended.pop(call_id, None)
        if "input" in data:
            if call_id in self._inputs:
                yield from self._add_input(call_id, data)
            else:
                note = StyledText("the model never called ", "warning")
                tool = self._texts.describe_call(data.get("tool", "?"), data["input"])[1:]
                yield from self._attach(Node(note, *tool))
        if ended is not None and "content" in ended:
            own, sent = (to_result_content(each.get("content") or ()) for each in (ended, data))
            if not same_result(own, sent):
                text = self._texts.shorten(join_texts(ended["content"]))
                returned = Node(StyledText("returned ", "warning"), text)
                yield from self._add_outcome(call_id, data, returned)
        # The result of a blocked call repeats the reason.
        if call_id not in self._blocked:
            text = self._texts.shorten(join_texts(data.get("content", ()))) or "(nothing)"
            is_error = data.get("is_error")
            arrow = StyledText("→ error ", "error") if is_error else StyledText("→ ", "ok")
            notes = [StyledText(" (mocked)", "warning")] if data.get("mocked") else []
            if call_id in self._observed and not is_error:
                notes.append(StyledText(" (the tool did not run)", "warning"))
            millis = None if called is None else self._now - called
            if ended is not None:
                millis = round(ended.get("ms", 0))
            took = self._describe_details("" if millis is None else format_duration(millis))
            outcome = Node(arrow, text, *notes, *took)
            yield from self._add_outcome(call_id, data, outcome)
        self._calls.pop(call_id, None)

    def _on_refused(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        # A trace of an earlier version has no destination.
        tried = str(data.get("destination") or data.get("error", ""))
        place = f", {data['where']}" if data.get("where") else ""
        text = self._texts.shorten(f"{tried}{place}")
        return self._attach(Node(StyledText("connection refused: ", "error"), text))

    def _on_verdict(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        mark, style = VERDICT_MARKS.get(data.get("status", ""), ("?", "warning"))
        message = escape_controls(str(data.get("message", "")))
        check = escape_controls(str(data.get("check", "")))
        # The end of the run repeats the message of these two, whole.
        ends_run = self._run is not None and check in {"playbook consumed", "run finished"}
        failed = data.get("status") not in {"pass", "warn"}
        if failed and self._run is not None:
            message = "" if ends_run else self._shorten_error(message)
        yield from self._close_turn()
        text = f" {check}: {message}" if message else f" {check}"
        node = Node(StyledText(mark, style), text)
        if failed and not ends_run and data.get("expected") is not None:
            for label, value in (("expected", data["expected"]), ("got", data.get("actual"))):
                shown = self._texts.shorten_json(value)
                # Most messages have the values already.
                if shown.strip('"') not in message:
                    node.add(Node(StyledText(f"{label} ", "name"), shown))
        yield from self._add(node)

    # --- Texts

    def _describe_details(self, *parts: str) -> tuple[StyledText, ...]:
        """Return durations and tokens for the end of a line, if they are shown."""
        shown = [part for part in parts if part] if self._times else []
        return tuple(StyledText(f" · {part}", "faint") for part in shown)

    def _describe_totals(self) -> tuple[StyledText, ...]:
        parts = self._totals[0].describe(self._now) if self._totals else ()
        return self._describe_details(*parts)


def _without_injected(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") != "text":
        return block
    return {**block, "text": strip_injected(block.get("text", ""))}


def render_last_lines(events: Iterable[Event], count: int) -> str:
    """Return the last lines of the tree of these events, for the report of a failed test."""
    last: deque[str] = deque(maxlen=count)
    total = 0
    for line in TraceTree(brief=True).render(events):
        last.append(render_line(line))
        total += 1
    before = [f"… {total - count} lines before"] if total > count else []
    return "\n".join([*before, *last])
