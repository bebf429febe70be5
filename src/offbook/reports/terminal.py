"""A trace rendered as a tree for the terminal.

    run 1 · session · 1 turn
    ├─ user "Refund order 7"
    │  ├─ 1. call refund {"id":7}
    │  │  └─ → error look it up first
    │  └─ 2. says "Sorry."
    └─ passed

The tree is rendered while the trace is read. A node is drawn once the next one shows if it is the
last child of its parent, so a trace of any size needs the memory of one message of the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import msgspec

from offbook.exchange.injected_text import strip_injected
from offbook.trace.events import (
    AGENT_END,
    AGENT_ERROR,
    AGENT_START,
    ERROR,
    FAULT,
    HOST_CALL,
    REPLY,
    REQUEST,
    RUN_END,
    RUN_START,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_ERROR,
    TOOL_RESULT,
    VERDICT,
    Event,
)

STYLES = {
    "": "",
    "error": "red",
    "faint": "dim",
    "ok": "green",
    "name": "bold",
    "warning": "yellow",
    "text": "cyan",
}
VERDICT_MARKS = {
    "pass": ("✓", "ok"),
    "fail": ("✗", "error"),
    "error": ("✗", "error"),
    "warn": ("!", "warning"),
    "no_data": ("?", "warning"),
}
MAX_LENGTH = 100
MAX_CHILDREN = 500
# The output of a tool can contain escape sequences: control characters are shown as symbols, so
# that a trace cannot control the terminal.
CONTROL_SYMBOLS = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    0x7F: 0x2421,
}

_encode = msgspec.json.Encoder(enc_hook=repr).encode


class StyledText(NamedTuple):
    """A part of a line, with the name of its style."""

    text: str
    style: str = ""


StyledLine = tuple[StyledText, ...]


class Node:
    """A node of the tree: its text, and its children."""

    def __init__(self, *spans: StyledText) -> None:
        self.spans = spans
        self.children: list[Node] = []

    def add(self, child: Node) -> Node:
        """Add a child and return it."""
        self.children.append(child)
        return child

    def draw(self, guide: str, *, last: bool, root: bool = False) -> Iterator[StyledLine]:
        """Yield the lines of this node and its children; `guide` is the prefix of its parents."""
        fork, below = ("", "") if root else ("└─ ", "   ") if last else ("├─ ", "│  ")
        line = [StyledText(guide + fork, "faint")]
        for span in self.spans:
            # A text of several lines continues behind the guides.
            first, *rest = span.text.split("\n")
            line.append(StyledText(first, span.style))
            for text in rest:
                yield tuple(line)
                line = [StyledText(f"{guide}{below}   ", "faint"), StyledText(text, span.style)]
        yield tuple(line)
        for child in self.children:
            yield from child.draw(guide + below, last=child is self.children[-1])


class Frame:
    """An open node whose children are still being added: a run or a turn."""

    def __init__(self, guide: str, *, root: bool = False) -> None:
        self.guide = guide
        self.root = root
        self._pending: Node | None = None

    def add(self, node: Node) -> Iterator[StyledLine]:
        """Draw the pending child and keep this one: it may be the last."""
        yield from self.flush(last=False)
        self._pending = node

    def flush(self, *, last: bool) -> Iterator[StyledLine]:
        """Draw the pending child."""
        node, self._pending = self._pending, None
        if node is not None:
            yield from node.draw(self.guide, last=last, root=self.root)


class TraceTree:
    """Renders events as a tree of runs, turns, messages of the model and tool calls.

    `full` shows long texts and values in full. `brief` shows the first line of errors, for a
    report that has their whole message elsewhere.
    """

    def __init__(self, *, full: bool = False, brief: bool = False) -> None:
        self._full = full
        self._brief = brief
        self._top = Frame("", root=True)
        self._run: Frame | None = None
        self._turn: Frame | None = None
        self._run_count = 0
        self._prompt: str | None = None
        self._said = ""  # the last text of the model
        self._tool_error = ""  # the last tool that raised, and what
        self._step: Node | None = None
        # Open calls by id; None once the node is drawn and can take no more children.
        self._calls: dict[str, Node | None] = {}
        self._blocked: set[str] = set()
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
            TOOL_RESULT: self._on_tool_result,
            TOOL_BLOCKED: self._on_tool_blocked,
            TOOL_ERROR: self._on_tool_error,
            FAULT: self._on_fault,
            VERDICT: self._on_verdict,
        }

    def render(self, events: Iterable[Event]) -> Iterator[StyledLine]:
        """Yield all lines of these events."""
        for event in events:
            try:
                lines = [*self._render_event(event)]
            except (AttributeError, KeyError, TypeError):
                # The data does not have the shape of its name, as in a trace of another tool.
                lines = [*self._attach(self._describe(event))]
            yield from lines
        yield from self._finish()

    def _render_event(self, event: Event) -> Iterator[StyledLine]:
        handler = self._handlers.get(event.event)
        if handler is not None:
            return handler(event.data)
        kind, _, name = event.event.partition(".")
        if event.event == "session.command":
            self._said = ""  # a command has no answer
        if kind == "ui":
            return self._attach(self._describe_ui(event.data))
        if kind == "hook" and name != "turn_end":
            return self._add(Node(StyledText(f"hook {_escape(name)}", "faint")))
        return self._attach(self._describe(event))

    def _finish(self) -> Iterator[StyledLine]:
        if self._run is not None:
            why = "before the end of the run: it was killed, or still runs"
            end = Node(StyledText(f"the trace ends here, {why}", "warning"))
            yield from self._close_run(end)
        yield from self._close_turn()
        yield from self._top.flush(last=True)

    # --- Placement of nodes

    @property
    def _frame(self) -> Frame:
        return self._turn or self._run or self._top

    def _add(self, node: Node) -> Iterator[StyledLine]:
        """Add a node to the open frame; the nodes before it can take no more children."""
        self._step = None
        self._calls = dict.fromkeys(self._calls)
        return self._frame.add(node)

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
        tool = _escape(str(data.get("tool", "?")))
        yield from self._add(Node(StyledText(tool, "name"), StyledText(" "), *node.spans))

    # --- Runs and turns

    def _on_run_start(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        yield from self._finish()
        self._run_count += 1
        self._said = ""
        details = f" · {data.get('subject', '?')}"
        if (turns := data.get("turns")) is not None:  # a command decides itself what it asks
            details += f" · {turns} turn{'s' * (turns != 1)}"
        node = Node(StyledText(f"run {self._run_count}", "name"), StyledText(details))
        yield from node.draw("", last=True, root=True)
        self._run = Frame("")

    def _on_run_end(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        if data.get("ok"):
            end = Node(StyledText("passed", "ok"))
            # Agents usually return what the model said last.
            answer: Any = data.get("output", self._said)
            if answer != self._said and (answer or self._said):
                if answer is None:
                    shown = "nothing"
                elif isinstance(answer, str):
                    shown = self._quote(answer)
                else:
                    shown = f"a value of type {_escape(answer['type'])}"
                yield from self._close_turn()
                yield from self._add(Node(StyledText(f"the agent returned {shown}")))
        else:
            error = _escape(str(data.get("error", "")))
            if self._tool_error.endswith(f" raised {error}"):
                error = self._tool_error.removesuffix(f" {error}")  # the tool's line has the reason
            end = Node(StyledText("failed: ", "error"), StyledText(self._shorten_error(error)))
        yield from self._add(end) if self._run is None else self._close_run(end)

    def _close_run(self, end: Node) -> Iterator[StyledLine]:
        yield from self._close_turn()
        if self._run is not None:
            yield from self._run.add(end)
            yield from self._run.flush(last=True)
        self._run = None

    def _open_turn(self, prompt: str) -> Iterator[StyledLine]:
        yield from self._close_turn()
        parent = self._run or self._top
        yield from parent.flush(last=False)
        node = Node(StyledText("user ", "name"), StyledText(self._quote(prompt), "text"))
        # In a run, a turn is never the last child: the end of the run follows.
        yield from node.draw(parent.guide, last=False, root=parent.root)
        self._turn = Frame("" if parent.root else f"{parent.guide}│  ")
        self._prompt = prompt

    def _close_turn(self) -> Iterator[StyledLine]:
        if self._turn is not None:
            yield from self._turn.flush(last=True)
        self._turn = self._step = self._prompt = None
        self._calls.clear()
        self._blocked.clear()

    def _on_agent_start(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        return self._open_turn(str(data.get("prompt", "")))

    def _on_agent_end(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        stop = data.get("stop", "stop")
        if stop != "stop":
            yield from self._add(Node(StyledText(f"the agent stopped: {stop}", "warning")))
        yield from self._close_turn()

    def _on_agent_error(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        error = self._shorten_error(_describe_error(data))
        return self._add(Node(StyledText("agent error: ", "error"), StyledText(error)))

    # --- The model

    def _on_request(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        """Render the user messages that are new in a request; the others are drawn already."""
        for ours, theirs in data.get("metadata", {}).get("call_ids", {}).items():
            if self._changed_ids.get(ours) != theirs:
                self._changed_ids[ours] = theirs
                ids = StyledText(_escape(f"{ours} became {theirs}"))
                yield from self._attach(
                    Node(StyledText("the client changed an id: ", "faint"), ids)
                )
        for message in data.get("new", ()):
            blocks = message.get("blocks", ())
            if not self._full:
                blocks = [_without_injected(block) for block in blocks]
            text = _join_texts(blocks)
            # A message without a text is one that the client wrote itself.
            if message.get("role") != "user" or not text or text == self._prompt:
                continue
            if self._calls:
                # A subagent, or a program that asks something else before it sends the result.
                quote = StyledText(self._quote(text), "text")
                yield from self._add(Node(StyledText("asks meanwhile ", "name"), quote))
            else:
                yield from self._open_turn(text)

    def _on_reply(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        blocks: list[dict[str, Any]] = data.get("blocks", [])
        calls = [block for block in blocks if block.get("type") == "tool_call"]
        text = _join_texts(blocks)
        self._said = text or self._said
        number = f"{data['step']}. " if data.get("step") else ""
        role = f"{data['role']} " if data.get("role") else ""
        head = (StyledText(number, "faint"), StyledText(role, "warning"))
        # A single call without a text takes the line of the message.
        single = len(calls) == 1 and not text
        if single:
            step = Node(*head, *self._describe_call(calls[0]["name"], calls[0].get("arguments")))
        elif text or not calls:
            quote = StyledText(self._quote(text), "text")
            step = Node(*head, StyledText("says ", "name"), quote)
        else:
            step = Node(*head, StyledText(f"calls {len(calls)} tools at once", "name"))
        for block in blocks:
            if block.get("type") == "thinking":
                thought = StyledText(self._quote(block.get("text", "")))
                step.add(Node(StyledText("thinks ", "faint"), thought))
        yield from self._add(step)
        self._step = step
        for call in calls:
            node = Node(*self._describe_call(call["name"], call.get("arguments")))
            self._calls[call["id"]] = step if single else step.add(node)

    def _on_model_error(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        error = _describe_error(data)
        return self._add(Node(StyledText("model error: ", "error"), StyledText(error)))

    def _on_fault(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        name = f" of {data['name']}" if data.get("name") else ""
        text = f"{data['kind']}{name}, {data['place']} call {data['number']}"
        return self._add(Node(StyledText("fault: ", "warning"), StyledText(_escape(text))))

    def _shorten_error(self, error: str) -> str:
        return error.partition("\n")[0] if self._brief else error

    # --- Tools and verdicts

    def _on_tool_call(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        # The reply of the model has announced the call; a call without a reply gets its own node.
        if data.get("call_id") in self._calls:
            return
        node = Node(*self._describe_call(data.get("tool", "?"), data.get("input")))
        yield from self._attach(node)
        self._calls[data.get("call_id", "")] = node
        self._step = self._step or node

    def _on_tool_blocked(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        call_id = data.get("call_id", "")
        self._blocked.add(call_id)
        reason = StyledText(self._shorten(str(data.get("reason", ""))))
        node = Node(StyledText("blocked: ", "warning"), reason)
        return self._add_outcome(call_id, data, node)

    def _on_tool_error(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        tool, error = _escape(str(data.get("tool", "?"))), str(data.get("error", ""))
        self._tool_error = f"{tool} raised {_escape(error)}"
        node = Node(StyledText(f"{tool} raised ", "error"), StyledText(self._shorten(error)))
        return self._add_outcome(data.get("call_id", ""), data, node)

    def _on_tool_result(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        call_id = data.get("call_id", "")
        # The result of a blocked call repeats the reason.
        if call_id not in self._blocked:
            text = self._shorten(_join_texts(data.get("content", ()))) or "(nothing)"
            is_error = data.get("is_error")
            arrow = StyledText("→ error ", "error") if is_error else StyledText("→ ", "ok")
            mocked = (StyledText(" (mocked)", "warning"),) if data.get("mocked") else ()
            yield from self._add_outcome(call_id, data, Node(arrow, StyledText(text), *mocked))
        self._calls.pop(call_id, None)

    def _on_verdict(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        mark, style = VERDICT_MARKS.get(data.get("status", ""), ("?", "warning"))
        message = _escape(str(data.get("message", "")))
        check = _escape(str(data.get("check", "")))
        if data.get("status") in {"fail", "error"} and self._run is not None:
            # The end of the run repeats the message of these two, whole.
            ends_run = check in {"playbook consumed", "run finished"}
            message = "" if ends_run else message.partition("\n")[0]
        yield from self._close_turn()
        text = f" {check}: {message}" if message else f" {check}"
        yield from self._add(Node(StyledText(mark, style), StyledText(text)))

    # --- Texts

    def _describe_ui(self, data: dict[str, Any]) -> Node:
        method = f"ui {_escape(str(data.get('method', '')))} "
        args = " ".join(self._shorten_json(arg) for arg in data.get("args", ()))
        answer = ()
        if "answer" in data:
            answer = (StyledText(" → ", "ok"), StyledText(self._shorten_json(data["answer"])))
        return Node(StyledText(method, "name"), StyledText(args, "text"), *answer)

    def _describe(self, event: Event) -> Node:
        """Return the node of any event; it accepts data of any shape."""
        name, data = event.event, event.data
        if name == "hook.turn_end":
            return Node(StyledText("hook turn_end", "faint"))
        if name == "session.extension":
            extension = StyledText(_escape(str(data.get("extension", ""))))
            return Node(StyledText("extension ", "faint"), extension)
        if name == "session.command":
            command = f"/{data.get('command', '')} {data.get('args', '')}".rstrip()
            return Node(StyledText("command ", "name"), StyledText(_escape(command), "text"))
        if name == "session.error":
            error = StyledText(_escape(str(data.get("error", ""))))
            return Node(StyledText("error: ", "error"), error)
        if name == HOST_CALL:
            return self._describe_host_call(data)
        fields = f" {self._shorten_json(data)}" if data else ""
        return Node(StyledText(_escape(name), "faint"), StyledText(fields))

    def _describe_host_call(self, data: dict[str, Any]) -> Node:
        operation = _escape(f"{data.get('capability', '')}.{data.get('operation', '')}")
        params = StyledText(f" {self._shorten_json(data.get('params') or {})}")
        answer = (StyledText(" → ", "ok"), StyledText(self._shorten_json(data.get("result"))))
        if "error" in data:
            answer = (StyledText(" error: ", "error"), StyledText(_escape(str(data["error"]))))
        return Node(StyledText("host ", "faint"), StyledText(operation, "name"), params, *answer)

    def _describe_call(self, tool: str, arguments: Any) -> tuple[StyledText, ...]:
        fields = StyledText(f" {self._shorten_json(arguments or {})}")
        return StyledText("call "), StyledText(_escape(tool), "name"), fields

    def _quote(self, text: str) -> str:
        return f'"{self._shorten(text)}"'

    def _shorten_json(self, value: Any) -> str:
        return self._shorten(_encode(value).decode())

    def _shorten(self, value: Any) -> str:
        """Return a text on one line of limited length, or in full if `full` is set."""
        text = str(value)
        if self._full:
            return _escape(text).rstrip("\n")
        # Four times the length is enough, and much faster than a text of megabytes.
        line = " ".join(_escape(text[: MAX_LENGTH * 4]).split())
        if len(line) > MAX_LENGTH or len(text) > MAX_LENGTH * 4:
            return f"{line[: MAX_LENGTH - 1]}…"
        return line


def _escape(text: str) -> str:
    return text.translate(CONTROL_SYMBOLS)


def _without_injected(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") != "text":
        return block
    return {**block, "text": strip_injected(block.get("text", ""))}


def _join_texts(blocks: Iterable[dict[str, Any]]) -> str:
    fields = {"text": "text", "image": "type", "foreign": "kind"}
    texts = (block.get(fields.get(block.get("type", ""), ""), "") for block in blocks)
    return "\n".join(filter(None, texts))


def _describe_error(data: dict[str, Any]) -> str:
    message = data.get("message") or data.get("error") or "no message"
    kind = f"{data.get('status', '')} {data.get('category', '')}".strip()
    return _escape(f"{message} ({kind})" if kind else str(message))


def render_line(line: StyledLine) -> str:
    """Return a line without its styles."""
    return "".join(span.text for span in line).rstrip()


def render_last_lines(events: Iterable[Event], count: int) -> str:
    """Return the last lines of the tree of these events, for the report of a failed test."""
    last: deque[str] = deque(maxlen=count)
    total = 0
    for line in TraceTree(brief=True).render(events):
        last.append(render_line(line))
        total += 1
    before = [f"… {total - count} lines before"] if total > count else []
    return "\n".join([*before, *last])


def print_lines(lines: Iterable[StyledLine], file: IO[str], *, colour: bool) -> None:
    """Write lines to a file, with colours on request."""
    if not colour:
        for line in lines:
            file.write(f"{render_line(line)}\n")
        return
    # Imported here: rich takes a tenth of a second, and plain output does not need it.
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, force_terminal=True, highlight=False, markup=False, emoji=False)
    for line in lines:
        spans = ((span.text, STYLES[span.style]) for span in line)
        console.print(Text.assemble(*spans), soft_wrap=True)
