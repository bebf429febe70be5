"""Lines with styles for the terminal: trees that are drawn while they grow, and texts of events."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import IO, Any, NamedTuple

import msgspec

from offbook.secrets import escape_controls, excerpt, outgoing
from offbook.trace.agent_output import output_text
from offbook.trace.events import FACTS, HOST_CALL, Event

STYLES = {
    "": "",
    "error": "red",
    "faint": "dim",
    "ok": "green",
    "name": "bold",
    "warning": "yellow",
    "text": "cyan",
}
MAX_CHILDREN = 500


class StyledText(NamedTuple):
    """A part of a line, with the name of its style."""

    text: str
    style: str = ""


StyledLine = tuple[StyledText, ...]


class Node:
    """A node of the tree: its text, and its children. Drawing escapes the text."""

    def __init__(self, *spans: StyledText | str) -> None:
        self.spans = tuple(StyledText(s) if isinstance(s, str) else s for s in spans)
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
            first, *rest = escape_controls(span.text).split("\n")
            line.append(StyledText(first, span.style))
            for text in rest:
                yield tuple(line)
                line = [StyledText(f"{guide}{below}   ", "faint"), StyledText(text, span.style)]
        yield tuple(line)
        for child in self.children:
            yield from child.draw(guide + below, last=child is self.children[-1])


class Frame:
    """An open node whose children are still being added: a run, an iteration or a turn."""

    def __init__(self, guide: str, *, root: bool = False) -> None:
        self.guide = guide
        self.root = root
        self._pending: list[Node] = []

    def add(self, node: Node) -> Iterator[StyledLine]:
        """Draw the pending children and keep this one: it may be the last."""
        yield from self.flush(last=False)
        self._pending = [node]

    def add_beside(self, node: Node) -> Iterator[StyledLine]:
        """Keep this child and the pending ones, which can still take children of their own."""
        if len(self._pending) >= MAX_CHILDREN:
            yield from self.flush(last=False)
        self._pending.append(node)

    def is_pending(self, node: Node) -> bool:
        """Return whether a child is not drawn yet."""
        return any(node is each for each in self._pending)

    def flush(self, *, last: bool) -> Iterator[StyledLine]:
        """Draw the pending children; `last` if none follows."""
        nodes, self._pending = self._pending, []
        for node in nodes:
            yield from node.draw(self.guide, last=last and node is nodes[-1], root=self.root)


def render_line(line: StyledLine) -> str:
    """Return a line without its styles."""
    return "".join(span.text for span in line).rstrip()


def wrap_line(line: StyledLine, width: int) -> Iterator[StyledLine]:
    """Yield a line in pieces that fit a width, broken between words, each behind the guides."""
    text = render_line(line)
    guide = text[: len(text) - len(text.lstrip("│├└─ "))]
    below = guide.replace("├─", "│ ").replace("└─", "  ") + "  "
    starts = [0]
    for word in re.finditer(r"\S+", text):
        used = word.end() - starts[-1] + len(below) * (len(starts) > 1)
        if used > width and word.start() > max(starts[-1], len(guide)):
            starts.append(word.start())
    for start, end in pairwise([*starts, len(text)]):
        piece = [StyledText(below, "faint")] if start else []
        offset = 0
        for span in line:
            part = span.text[max(0, start - offset) : max(0, end - offset)]
            piece.append(StyledText(part, span.style))
            offset += len(span.text)
        yield tuple(piece)


def print_lines(lines: Iterable[StyledLine], file: IO[str], *, colour: bool) -> None:
    """Write lines to a file, with colours on request; on a terminal, broken between words."""
    if file.isatty():
        from shutil import get_terminal_size  # late, as below

        width = get_terminal_size().columns
        lines = (piece for line in lines for piece in wrap_line(line, width))
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


# --- Texts for a tree of events: how one event, one value or one duration is shown on a line

MAX_LENGTH = 100
_encode = msgspec.json.Encoder(enc_hook=repr).encode

CELL_EVENTS = {
    *("cell.write", "cell.compute", "cell.effect", "cell.send", "cell.handle"),
    *("cell.cancel", "cell.undo", "cell.error"),
}


class EventTexts:
    """Describes single events. `full` shows long texts and values in full."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full

    def describe(self, event: Event) -> Node:
        """Return the node of any event; it accepts data of any shape."""
        name, data = event.event, event.data
        if name == "hook.turn_end":
            return Node(StyledText("hook turn_end", "faint"))
        if name == "session.extension":
            return Node(StyledText("extension ", "faint"), str(data.get("extension", "")))
        if name == "session.command":
            command = f"/{data.get('command', '')} {data.get('args', '')}".rstrip()
            return Node(StyledText("command ", "name"), StyledText(command, "text"))
        if name == "session.error":
            return Node(StyledText("error: ", "error"), str(data.get("error", "")))
        if name == HOST_CALL:
            return self._describe_host_call(data)
        if name in CELL_EVENTS:
            return self._describe_cell(name.removeprefix("cell."), data)
        fields = f" {self.shorten_json(data)}" if data else ""
        return Node(StyledText(name, "faint"), fields)

    def _describe_cell(self, verb: str, data: dict[str, Any]) -> Node:
        """Return the node of an event of a pattern: `write counter.value 3 (handler increment)`."""
        names = (data.get(key) for key in ("cell", "computed", "effect", "stream"))
        target = next((f" {name}" for name in names if name), "")
        value = data.get("value", data.get("event"))
        shown = f" {self.shorten_json(value)}" if value is not None else ""
        by = f"({data['by']})" if data.get("by") else ""
        error = f"{data['error']} {data.get('where', '')}".rstrip() if "error" in data else ""
        rest = self.shorten(f"{by}{error}")
        return Node(
            StyledText(verb, "error" if error else "faint"),
            StyledText(target, "name"),
            f"{shown}{' ' * bool(rest)}{rest}",
        )

    def describe_call(self, tool: str, arguments: Any) -> tuple[StyledText, ...]:
        """Return the parts of a line for a call of a tool."""
        fields = StyledText(f" {self.shorten_json(arguments or {})}")
        return StyledText("call "), StyledText(tool, "name"), fields

    def describe_cli_call(self, data: dict[str, Any]) -> Node:
        """Return the node of a call of a fake program."""
        words = shlex.join([str(data.get("program", "")), *map(str, data.get("args") or ())])
        answered, code = data.get("answered", True), data.get("exit_code")
        ended = " did not end" if code is None else f" exit {code}"
        state = ended if answered else " no answer"
        style = "ok" if answered and not code else "error"
        shown = StyledText(excerpt(words, 300), "name")
        return Node(StyledText("fake ", "faint"), shown, StyledText(state, style))

    def describe_remote_task(self, data: dict[str, Any]) -> Node:
        """Return the node of a message to a remote agent: `remote billing "Pay" → paid`."""
        state = str(data.get("state", ""))
        mark = "→" if state == "completed" else f"→ {state}"
        return Node(
            StyledText("remote ", "faint"),
            StyledText(str(data.get("agent", "")), "name"),
            f" {self.shorten_json(data.get('message'))} ",
            StyledText(f"{mark} ", "error" if state == "failed" else "ok"),
            self.shorten_json(data.get("answer")),
        )

    def describe_exit(self, data: dict[str, Any]) -> Node:
        """Return the node of the end of a process."""
        ended = "process stopped: timed out" if data.get("timed_out") else "process ended"
        style = "faint" if data["code"] == 0 and not data.get("timed_out") else "error"
        leaked = ", processes left behind" if data.get("leaked") else ""
        return Node(StyledText(f"{ended}, exit code {data['code']}{leaked}", style))

    def _describe_host_call(self, data: dict[str, Any]) -> Node:
        operation = f"{data.get('capability', '')}.{data.get('operation', '')}"
        params = f" {self.shorten_json(data.get('params') or {})}"
        answer = (StyledText(" → ", "ok"), self.shorten_json(data.get("result")))
        if "error" in data:
            answer = (StyledText(" error: ", "error"), str(data["error"]))
        return Node(StyledText("host ", "faint"), StyledText(operation, "name"), params, *answer)

    def describe_output(self, event: Event) -> Node:
        """Return the node of what a process or terminal wrote."""
        output = output_text(event)
        if output is None:
            return self.describe(event)
        return Node(StyledText(f"{output[0]} ", "faint"), self.quote(output[1]))

    def describe_change(self, data: dict[str, Any]) -> Node:
        """Describe a difference between a request and its conversation so far."""
        what = str(data.get("what", ""))
        sides = [
            f"{name} {self.quote(str(data[name]))}"
            for name in ("expected", "got")
            if data.get(name)
        ]
        style = {"fails": "error", "allowed": "faint"}.get(str(data.get("level")), "warning")
        fact = StyledText(f"changed: {FACTS.get(what, what)}", style)
        return Node(fact, " " + ", ".join(sides))

    def describe_publish(self, data: dict[str, Any]) -> Node:
        """Return the node of a published event."""
        source = f"{data['source']} " if data.get("source") else ""
        topic = StyledText(f"publishes {data['topic']} ", "name")
        payload = data.get("payload", "")
        shown = self.quote(payload) if isinstance(payload, str) else self.shorten_json(payload)
        return Node(source, topic, StyledText(shown if payload else "", "text"))

    def describe_start(self, data: dict[str, Any]) -> Node:
        """Return the node of the start of a process."""
        command = self.shorten(" ".join(map(str, data["command"])))
        return Node(StyledText("process ", "name"), command)

    def describe_ui(self, data: dict[str, Any]) -> Node:
        """Return the node of a call of the user interface."""
        method = f"ui {data.get('method', '')} "
        args = " ".join(self.shorten_json(arg) for arg in data.get("args", ()))
        answer = ()
        if "answer" in data:
            answer = (StyledText(" → ", "ok"), self.shorten_json(data["answer"]))
        return Node(StyledText(method, "name"), StyledText(args, "text"), *answer)

    def quote(self, text: str) -> str:
        """Return a shortened text in quotes."""
        return f'"{self.shorten(text)}"'

    def shorten_json(self, value: Any) -> str:
        """Return a value as shortened JSON."""
        return self.shorten(_encode(value).decode())

    def shorten(self, value: Any) -> str:
        """Return a text on one line of limited length, or in full if `full` is set."""
        text = str(value)
        if self.full:
            return outgoing(text).rstrip("\n")
        if len(text) > MAX_LENGTH:
            text = outgoing(text)
        # Four times the length is enough, and much faster than to split a text of megabytes.
        line = " ".join(escape_controls(text[: MAX_LENGTH * 4]).split())
        if len(line) > MAX_LENGTH or len(text) > MAX_LENGTH * 4:
            return f"{line[: MAX_LENGTH - 1]}…"
        return line


def format_duration(millis: int) -> str:
    """Return milliseconds as `7 ms`, `1.5 s` or `2 min 3 s`."""
    if millis < 1000:  # noqa: PLR2004 - a second
        return f"{max(0, millis)} ms"
    seconds = millis / 1000
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def format_tokens(asked: int, replied: int) -> str:
    """Return the tokens of a request and of its reply."""
    return f"{asked:,} + {replied:,} tokens"


def join_texts(blocks: Iterable[dict[str, Any]]) -> str:
    """Return the texts of blocks, one a line; an image is its type."""
    fields = {"text": "text", "image": "type", "foreign": "kind"}
    texts = (block.get(fields.get(block.get("type", ""), ""), "") for block in blocks)
    return "\n".join(filter(None, texts))


def describe_error(data: dict[str, Any]) -> str:
    """Return the message of an error event, with its status and category."""
    message = data.get("message") or data.get("error") or "no message"
    kind = f"{data.get('status', '')} {data.get('category', '')}".strip()
    return f"{message} ({kind})" if kind else str(message)
