"""Lines of a tree, their guides and their colours. The door of rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

STYLES = {
    "": "",
    "bad": "red",
    "faint": "dim",
    "good": "green",
    "name": "bold",
    "odd": "yellow",
    "said": "cyan",
}


class Span(NamedTuple):
    """A piece of a line, and how it looks."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


class Node:
    """A line of the tree, with the lines below it."""

    def __init__(self, *spans: Span) -> None:
        self.spans = spans
        self.children: list[Node] = []

    def add(self, child: Node) -> Node:
        """Put a line below this one."""
        self.children.append(child)
        return child

    def draw(self, guide: str, *, last: bool, root: bool = False) -> Iterator[Line]:
        """This line and all below it, behind the guides of those above."""
        fork, below = ("", "") if root else ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _hang(self.spans, guide + fork, guide + below)
        for child in self.children:
            yield from child.draw(guide + below, last=child is self.children[-1])


def _hang(spans: tuple[Span, ...], first: str, rest: str) -> Iterator[Line]:
    """The spans, broken where their text is, each line behind its guide."""
    line: list[Span] = [Span(first, "faint")]
    for span in spans:
        head, *more = span.text.split("\n")
        line.append(Span(head, span.style))
        for text in more:
            yield tuple(line)
            line = [Span(f"{rest}   ", "faint"), Span(text, span.style)]
    yield tuple(line)


class Frame:
    """A line that is still open: what comes next belongs below it."""

    def __init__(self, guide: str, *, root: bool = False) -> None:
        self.guide = guide
        self.root = root
        self.pending: Node | None = None

    def add(self, node: Node) -> Iterator[Line]:
        """Draw what has waited, and let this wait: only the next one tells whether it is last."""
        yield from self.flush(last=False)
        self.pending = node

    def flush(self, *, last: bool) -> Iterator[Line]:
        node, self.pending = self.pending, None
        if node is not None:
            yield from node.draw(self.guide, last=last, root=self.root)


def spell(line: Line) -> str:
    """A line without its looks."""
    return "".join(span.text for span in line).rstrip()


def show_lines(lines: Iterable[Line], file: IO[str], *, colour: bool) -> None:
    """Write lines, with colours where they are wanted."""
    if not colour:
        for line in lines:
            file.write(f"{spell(line)}\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, force_terminal=True, highlight=False, markup=False, emoji=False)
    for line in lines:
        spans = ((span.text, STYLES[span.style]) for span in line)
        console.print(Text.assemble(*spans), soft_wrap=True)
