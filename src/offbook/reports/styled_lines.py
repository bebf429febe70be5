"""Lines with styles for the terminal, and trees of them that are drawn while they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

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
