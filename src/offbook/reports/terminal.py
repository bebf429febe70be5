"""A trace, told to a person at a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import msgspec

from offbook.trace.events import (
    AGENT_END,
    AGENT_ERROR,
    AGENT_START,
    ERROR,
    REPLY,
    REQUEST,
    RUN_END,
    RUN_START,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_RESULT,
    VERDICT,
    Event,
)

# --- A trace, told to a person at a terminal.


# --- Lines of a tree, their guides and their colours. The door of rich.

STYLES = {
    "": "",
    "bad": "red",
    "faint": "dim",
    "good": "green",
    "name": "bold",
    "odd": "yellow",
    "said": "cyan",
}


class StyledText(NamedTuple):
    """A piece of a line, and how it looks."""

    text: str
    style: str = ""


StyledLine = tuple[StyledText, ...]


class Node:
    """A line of the tree, with the lines below it."""

    def __init__(self, *spans: StyledText) -> None:
        self.spans = spans
        self.children: list[Node] = []

    def add(self, child: Node) -> Node:
        """Put a line below this one."""
        self.children.append(child)
        return child

    def draw(self, guide: str, *, last: bool, root: bool = False) -> Iterator[StyledLine]:
        """This line and all below it, behind the guides of those above."""
        fork, below = ("", "") if root else ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _hang(self.spans, guide + fork, guide + below)
        for child in self.children:
            yield from child.draw(guide + below, last=child is self.children[-1])


def _hang(spans: tuple[StyledText, ...], first: str, rest: str) -> Iterator[StyledLine]:
    """The spans, broken where their text is, each line behind its guide."""
    line: list[StyledText] = [StyledText(first, "faint")]
    for span in spans:
        head, *more = span.text.split("\n")
        line.append(StyledText(head, span.style))
        for text in more:
            yield tuple(line)
            line = [StyledText(f"{rest}   ", "faint"), StyledText(text, span.style)]
    yield tuple(line)


class Frame:
    """A line that is still open: what comes next belongs below it."""

    def __init__(self, guide: str, *, root: bool = False) -> None:
        self.guide = guide
        self.root = root
        self.pending: Node | None = None

    def add(self, node: Node) -> Iterator[StyledLine]:
        """Draw what has waited, and let this wait: only the next one tells whether it is last."""
        yield from self.flush(last=False)
        self.pending = node

    def flush(self, *, last: bool) -> Iterator[StyledLine]:
        node, self.pending = self.pending, None
        if node is not None:
            yield from node.draw(self.guide, last=last, root=self.root)


def render_line(line: StyledLine) -> str:
    """A line without its looks."""
    return "".join(span.text for span in line).rstrip()


def print_lines(lines: Iterable[StyledLine], file: IO[str], *, colour: bool) -> None:
    """Write lines, with colours where they are wanted."""
    if not colour:
        for line in lines:
            file.write(f"{render_line(line)}\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, force_terminal=True, highlight=False, markup=False, emoji=False)
    for line in lines:
        spans = ((span.text, STYLES[span.style]) for span in line)
        console.print(Text.assemble(*spans), soft_wrap=True)


# --- A trace told as a tree, for the eyes of a person.

BRIEF = 100
CROWD = 500
MARKS = {
    "pass": ("✓", "good"),
    "fail": ("✗", "bad"),
    "error": ("✗", "bad"),
    "warn": ("!", "odd"),
    "no_data": ("?", "odd"),
}
# What a tool printed may hold escape sequences: they are shown, never obeyed.
TAMED = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    0x7F: 0x2421,
}

_encode = msgspec.json.Encoder(enc_hook=repr).encode


class TraceTree:
    """Tells events as the lines of a tree: runs, their turns, the model's messages, the rest."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._top = Frame("", root=True)
        self._run: Frame | None = None
        self._turn: Frame | None = None
        self._runs = 0
        self._prompt: str | None = None
        self._step: Node | None = None
        self._calls: dict[str, Node | None] = {}  # without its line, once that is drawn
        self._blocked: set[str] = set()
        self._tellers = {
            RUN_START: self._start_run,
            RUN_END: self._end_run,
            AGENT_START: self._start_agent,
            AGENT_END: self._end_agent,
            AGENT_ERROR: self._fail_agent,
            REQUEST: self._ask,
            REPLY: self._answer,
            ERROR: self._refuse,
            TOOL_CALL: self._call,
            TOOL_RESULT: self._result,
            TOOL_BLOCKED: self._block,
            VERDICT: self._judge,
        }

    def tell(self, events: Iterable[Event]) -> Iterator[StyledLine]:
        """All lines of these events."""
        for event in events:
            yield from self.hear(event)
        yield from self.finish()

    def hear(self, event: Event) -> list[StyledLine]:
        """The lines that are known now that this has happened."""
        try:
            return [*self._tell(event)]
        except (AttributeError, KeyError, TypeError):  # not of the shape that its name promises
            return [*self._attach(self._describe_other(event))]

    def _tell(self, event: Event) -> Iterator[StyledLine]:
        tell = self._tellers.get(event.event)
        if tell is not None:
            return tell(event.data)
        kind, _, name = event.event.partition(".")
        if kind == "ui":
            return self._attach(self._describe_ui(event.data))
        if kind == "hook" and name != "turn_end":
            return self._add(Node(StyledText(f"hook {_tame(name)}", "faint")))
        return self._attach(self._describe_other(event))

    def finish(self) -> Iterator[StyledLine]:
        """The lines that waited for more."""
        if self._run is not None:
            yield from self._close_run(
                Node(StyledText("the trace ends here, in the middle", "odd"))
            )
        yield from self._close_turn()
        yield from self._top.flush(last=True)

    @property
    def _frame(self) -> Frame:
        return self._turn or self._run or self._top

    def _add(self, node: Node) -> Iterator[StyledLine]:
        self._step = None
        self._calls = dict.fromkeys(self._calls)
        return self._frame.add(node)

    def _attach(self, node: Node) -> Iterator[StyledLine]:
        """Put a line where it happened: in the only open call, in the model's message, or here."""
        if self._step is None:
            yield from self._add(node)
            return
        at_work = [call for call in self._calls.values() if call is not None]
        where = at_work[0] if len(at_work) == 1 else self._step
        if len(where.children) < CROWD:
            where.add(node)
        else:
            step = Node(StyledText("… and on", "faint"))
            yield from self._add(step)
            self._step = step
            step.add(node)

    def _start_run(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        yield from self.finish()
        self._runs += 1
        turns = data.get("turns", 0)
        about = f" · {data.get('subject', '?')} · {turns} turn{'s' * (turns != 1)}"
        yield from Node(StyledText(f"run {self._runs}", "name"), StyledText(about)).draw(
            "", last=True, root=True
        )
        self._run = Frame("")

    def _end_run(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        if data.get("ok"):
            end = Node(StyledText("passed", "good"))
        else:
            end = Node(StyledText("failed: ", "bad"), StyledText(_tame(str(data.get("error", "")))))
        if self._run is None:
            yield from self._add(end)
        else:
            yield from self._close_run(end)

    def _close_run(self, end: Node) -> Iterator[StyledLine]:
        yield from self._close_turn()
        if self._run is not None:
            yield from self._run.add(end)
            yield from self._run.flush(last=True)
        self._run = None

    def _open_turn(self, prompt: str) -> Iterator[StyledLine]:
        yield from self._close_turn()
        above = self._run or self._top
        yield from above.flush(last=False)
        node = Node(StyledText("user ", "name"), StyledText(self._quote(prompt), "said"))
        yield from node.draw(above.guide, last=False, root=above.root)
        self._turn = Frame("" if above.root else f"{above.guide}│  ")
        self._prompt = prompt

    def _close_turn(self) -> Iterator[StyledLine]:
        if self._turn is not None:
            yield from self._turn.flush(last=True)
        self._turn = self._step = self._prompt = None
        self._calls.clear()
        self._blocked.clear()

    def _start_agent(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        return self._open_turn(str(data.get("prompt", "")))

    def _end_agent(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        stop = data.get("stop", "stop")
        if stop != "stop":
            yield from self._add(Node(StyledText(f"the agent stopped: {stop}", "odd")))
        yield from self._close_turn()

    def _fail_agent(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        return self._add(
            Node(StyledText("the agent gave up: ", "bad"), StyledText(_describe_error(data)))
        )

    def _ask(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        """A request shows only who spoke in it; what the model was told before stands above."""
        for message in data.get("new", ()):
            text = _texts(message.get("blocks", ()))
            if message.get("role") != "user" or text == self._prompt:
                continue
            if self._calls:  # a tool is at work: this is somebody else's conversation
                yield from self._add(
                    Node(
                        StyledText("asked by a tool ", "name"),
                        StyledText(self._quote(text), "said"),
                    )
                )
            else:
                yield from self._open_turn(text)

    def _answer(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        blocks: list[dict[str, Any]] = data.get("blocks", [])
        calls = [block for block in blocks if block.get("type") == "tool_call"]
        said = _texts(blocks)
        number = f"{data['step']}. " if data.get("step") else ""
        role = f"{data['role']} " if data.get("role") else ""
        head = (StyledText(number, "faint"), StyledText(role, "odd"))
        alone = len(calls) == 1 and not said
        if alone:
            step = Node(*head, *self._spell_call(calls[0]["name"], calls[0].get("arguments")))
        elif said or not calls:
            step = Node(*head, StyledText("says ", "name"), StyledText(self._quote(said), "said"))
        else:
            step = Node(*head, StyledText(f"calls {len(calls)} tools at once", "name"))
        for thought in (block for block in blocks if block.get("type") == "thinking"):
            step.add(
                Node(
                    StyledText("thinks ", "faint"), StyledText(self._quote(thought.get("text", "")))
                )
            )
        yield from self._add(step)
        self._step = step
        for call in calls:
            spelled = Node(*self._spell_call(call["name"], call.get("arguments")))
            self._calls[call["id"]] = step if alone else step.add(spelled)

    def _spell_call(self, tool: str, given: Any) -> tuple[StyledText, ...]:
        return (
            StyledText("call "),
            StyledText(_tame(tool), "name"),
            StyledText(f" {self._brief(given or {})}"),
        )

    def _refuse(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        return self._add(
            Node(StyledText("model error: ", "bad"), StyledText(_describe_error(data)))
        )

    def _call(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        if data.get("call_id") in self._calls:
            return
        node = Node(*self._spell_call(data.get("tool", "?"), data.get("input")))
        yield from self._attach(node)
        self._calls[data.get("call_id", "")] = node
        self._step = self._step or node

    def _block(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        call_id = data.get("call_id", "")
        self._blocked.add(call_id)
        reason = self._brief(str(data.get("reason", "")), json=False)
        return self._settle(call_id, data, Node(StyledText("blocked: ", "odd"), StyledText(reason)))

    def _result(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        call_id = data.get("call_id", "")
        if call_id in self._blocked:  # the block has been told already
            self._calls.pop(call_id, None)
            return
        text = self._brief(_texts(data.get("content", ())), json=False) or "(nothing)"
        arrow = StyledText("→ error ", "bad") if data.get("is_error") else StyledText("→ ", "good")
        mark = (StyledText(" (mocked)", "odd"),) if data.get("mocked") else ()
        yield from self._settle(call_id, data, Node(arrow, StyledText(text), *mark))
        self._calls.pop(call_id, None)

    def _settle(self, call_id: str, data: dict[str, Any], node: Node) -> Iterator[StyledLine]:
        """Put what became of a call below it; one that was drawn already is named again."""
        call = self._calls.get(call_id)
        if call is not None:
            call.add(node)
            return
        tool = _tame(str(data.get("tool", "?")))
        yield from self._add(Node(StyledText(tool, "name"), StyledText(" "), *node.spans))

    def _judge(self, data: dict[str, Any]) -> Iterator[StyledLine]:
        mark, style = MARKS.get(data.get("status", ""), ("?", "odd"))
        about = _tame(str(data.get("message", "")))
        if data.get("status") == "fail" and self._run is not None:
            about = about.partition("\n")[0]  # the run ends with the whole of it
        text = f" {_tame(str(data.get('check', '')))}{f': {about}' if about else ''}"
        yield from self._close_turn()
        yield from self._add(Node(StyledText(mark, style), StyledText(text)))

    def _describe_ui(self, data: dict[str, Any]) -> Node:
        asked = "answer" in data
        args = " ".join(self._brief(arg) for arg in data.get("args", ()))
        method = f"ui {_tame(str(data.get('method', '')))} "
        answer = (
            (StyledText(" → ", "good"), StyledText(self._brief(data["answer"]))) if asked else ()
        )
        return Node(StyledText(method, "name"), StyledText(args, "said"), *answer)

    def _describe_other(self, event: Event) -> Node:
        name, data = event.event, event.data
        if name == "hook.turn_end":
            return Node(StyledText("hook turn_end", "faint"))
        if name == "session.extension":
            return Node(
                StyledText("extension ", "faint"), StyledText(_tame(str(data.get("extension", ""))))
            )
        if name == "session.command":
            command = f"/{data.get('command', '')} {data.get('args', '')}".rstrip()
            return Node(StyledText("command ", "name"), StyledText(_tame(command), "said"))
        if name == "session.error":
            return Node(StyledText("error: ", "bad"), StyledText(_tame(str(data.get("error", "")))))
        return Node(
            StyledText(_tame(name), "faint"), StyledText(f" {self._brief(data)}" if data else "")
        )

    def _quote(self, text: str) -> str:
        return f'"{self._brief(text, json=False)}"'

    def _brief(self, value: Any, *, json: bool = True) -> str:
        """A value in one line, or whole."""
        text = _encode(value).decode() if json else str(value)
        if self._full:
            return _tame(text).rstrip("\n")
        flat = " ".join(_tame(text[: BRIEF * 4]).split())
        more = len(flat) > BRIEF or len(text) > BRIEF * 4
        return f"{flat[: BRIEF - 1]}…" if more else flat


def _tame(text: str) -> str:
    return text.translate(TAMED)


def _texts(blocks: Iterable[dict[str, Any]]) -> str:
    kinds = {"text": "text", "image": "type", "foreign": "kind"}
    shown = (block.get(kinds.get(block.get("type", ""), ""), "") for block in blocks)
    return "\n".join(filter(None, shown))


def _describe_error(data: dict[str, Any]) -> str:
    kind = f"{data.get('status', '')} {data.get('category', '')}".strip()
    return _tame(f"{data.get('message', '')} ({kind})")


def render_last_lines(events: Iterable[Event], lines: int) -> str:
    """The last lines of the tree of these events."""
    kept: deque[str] = deque(maxlen=lines)
    count = 0
    for line in TraceTree().tell(events):
        kept.append(render_line(line))
        count += 1
    before = [f"… {count - lines} lines before"] if count > lines else []
    return "\n".join([*before, *kept])
