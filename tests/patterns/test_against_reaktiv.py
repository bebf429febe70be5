"""Random graphs and schedules give the same values, changes and runs as in reaktiv 0.21.5.

Compared is what reaktiv does right: lazy memoised values, consistent diamonds, changing
dependencies and batches. It has no paths, transactions, streams or a flush of its own, so each
step here ends where reaktiv runs its effects.
"""

# pyright: basic

import json
from typing import Any

import reaktiv
from hypothesis import example, given
from hypothesis import strategies as st

from offbook.patterns import Cell, Runtime, Store

SOURCES = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, SOURCES - 1), st.integers(0, 5)),
        st.tuples(st.just("read"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("batch"), st.integers(0, 5), st.integers(0, 5)),
    ),
    max_size=25,
)
EDGES = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=3), min_size=1, max_size=12)


class Graph:
    """A graph in one of the two libraries, and the log of what happened in it."""

    def __init__(self, edges: list[list[int]]) -> None:
        self.log: list[Any] = []
        self.sources = [self.source(number) for number in range(SOURCES)]
        self.nodes: list[Any] = list(self.sources)
        for at, chosen in enumerate(edges):
            inputs = [number % len(self.nodes) for number in chosen]
            self.nodes.append(self.computed(lambda at=at, inputs=inputs: self.compute(at, inputs)))
        for at in range(SOURCES, len(self.nodes), 3):
            self.watch(at)

    def compute(self, at: int, inputs: list[int]) -> int:
        self.log.append(["run", at])
        # The first input decides whether the others are read, and some results stay equal.
        first = self.read(inputs[0])
        if first % 3 == 0:
            return first
        return (first + sum(self.read(number) for number in inputs[1:])) % 7

    def source(self, value: int) -> Any:
        raise NotImplementedError

    def computed(self, function: Any) -> Any:
        raise NotImplementedError

    def watch(self, at: int) -> None:
        raise NotImplementedError

    def read(self, at: int) -> int:
        raise NotImplementedError

    def write(self, values: dict[int, int]) -> None:
        """Write values to sources, and run the effects once."""
        raise NotImplementedError


class OurGraph(Graph):
    def __init__(self, edges: list[list[int]]) -> None:
        self.runtime = Runtime()
        super().__init__(edges)

    def source(self, value: int) -> Any:
        return Cell(self.runtime, Store("source", value))

    def computed(self, function: Any) -> Any:
        return self.runtime.computed(function)

    def watch(self, at: int) -> None:
        self.nodes[at].sink(lambda value: self.log.append(["see", at, value]))

    def read(self, at: int) -> int:
        return self.nodes[at].get()

    def write(self, values: dict[int, int]) -> None:
        with self.runtime.batch():
            for number, value in values.items():
                self.sources[number].set(value)
        self.runtime.flush()


class ReaktivGraph(Graph):
    def source(self, value: int) -> Any:
        return reaktiv.Signal(value)

    def computed(self, function: Any) -> Any:
        return reaktiv.Computed(function)

    def watch(self, at: int) -> None:
        last: list[int] = []

        def see() -> None:
            value = self.nodes[at]()
            if last != [value]:
                self.log.append(["see", at, value])
            last[:] = [value]

        self.effects: list[Any] = [*getattr(self, "effects", ()), reaktiv.Effect(see)]

    def read(self, at: int) -> int:
        return self.nodes[at]()

    def write(self, values: dict[int, int]) -> None:
        with reaktiv.batch():
            for number, value in values.items():
                self.sources[number].set(value)

    def close(self) -> None:
        for effect in self.effects:
            effect.dispose()


def play(graph: Graph, steps: list[tuple[str, int, int]]) -> list[Any]:
    """Run the steps; return for each the values read and seen, and the runs, in any order."""
    history: list[Any] = []
    for kind, number, value in steps:
        graph.log.clear()
        result = None
        if kind == "read":
            result = graph.read(number % len(graph.nodes))
        elif kind == "set":
            graph.write({number: value})
        else:
            graph.write({0: number, 1: value, 2: number})
        history.append((kind, result, sorted(graph.log, key=json.dumps)))
    return [*history, [graph.read(at) for at in range(len(graph.nodes))]]


@given(edges=EDGES, steps=STEPS)
@example(edges=[[0], [0], [3, 4]], steps=[("set", 0, 1), ("set", 0, 4)])  # a diamond
def test_random_graphs_agree_with_reaktiv(edges: list[list[int]], steps: Any):
    theirs = ReaktivGraph(edges)
    try:
        assert play(OurGraph(edges), steps) == play(theirs, steps)
    finally:
        theirs.close()
