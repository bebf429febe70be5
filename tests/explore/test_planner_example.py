"""The planner of `examples/`, explored: the bugs that a generated model found in it, now fixed.

Each broken variant has the code that the example had before.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from offbook import Run, session
from offbook.errors import InvariantBroken
from offbook.explore import explore

EXAMPLE = Path(__file__).parents[2] / "examples" / "planner"
MOCKS = {"bash": "ok", "edit": "ok", "read": "ok", "write": "ok"}
DECISIONS = ["plan_propose", "plan_list", "plan_approve", "plan_reject"]
WRITES = ["plan_mode", "plan_propose", "plan_approve", "edit", "write"]
STEPS = [{"description": "Crack eggs"}]
# Few values, so that depth 4 can be searched: an enumeration is for order, not for values.
VALUES = {
    "steps": [STEPS],
    "title": ["Omelette"],
    "status": ["proposed"],
    "reason": ["too many eggs"],
    "path": ["a"],
}
RUNS = 250  # the bugs of both broken variants are found in fewer
# What a shell command can look like: each with a file that it would create.
OPTIONS = ("-o out", "-ro out", "-fls out", "-fls$x out", "() ( touch out ); ls")
COMMANDS = [
    *(f"{name} {option}" for name in ("sort", "find .", "ls") for option in OPTIONS),
    *("sort -ro out a.txt", "sort a.txt --outp=out", "echo x >&2out", "ls; touch out"),
    "echo x > /dev/null",
]
NOT_REFUSED_BEFORE = ["sort -ro out a.txt", "ls () ( touch out ); ls", "find . -fls$x out"]


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    yield
    for name in ("planner", "shell"):
        sys.modules.pop(name, None)


def make_world(
    kind: str = "Planner",
    *,
    confirm: bool,
    tools: list[str] | None = None,
    mocks: dict[str, Any] | None = None,
) -> Callable[[], Any]:
    module: Any = import_module("planner")

    class RacingPlanner(module.Planner):
        async def approve(self, params: Any, ctx: Any) -> Any:
            plan = self.plans.get(params["id"])
            if plan is None:
                return self.unknown(params["id"])
            if plan.status != "proposed":
                return module.failed(f"{plan.id} is {plan.status} already.")
            if not await ctx.ui.confirm(f"Approve {plan.id}?", plan.describe()):
                return f"{plan.id} was not approved."
            plan.status = "approved"
            return f"{plan.id} approved."

    class OpenPlanner(module.Planner):
        def switch(self, params: Any, ctx: Any) -> Any:  # noqa: ARG002 - a tool's parameters
            self.planning = params["enable"]
            return f"Plan mode is now {self.planning}."

    kinds = {"Planner": module.Planner, "Racing": RacingPlanner, "Open": OpenPlanner}

    async def answer(*_: object) -> bool:
        await asyncio.sleep(0)  # the user takes a moment
        return confirm

    def world() -> Any:
        planner = kinds[kind]()

        def extension(api: Any) -> None:
            module.extension(api, planner=planner)
            api.set_active_tools(tools)

        rehearsal = session(
            extensions=[extension],
            mock_tools=MOCKS if mocks is None else mocks,
            mock_ui={"confirm": answer},
        )
        return rehearsal, planner

    return world


def decided_once(run: Run, _: Any) -> None:
    results = [*run.results("plan_approve"), *run.results("plan_reject")]
    decided = [r.text.split()[0] for r in results if re.match(r"\S+ (approved|rejected)\.", r.text)]
    assert len(decided) == len(set(decided)), f"decided twice: {decided}"


def nothing_is_written_without_approval(run: Run, _: Any) -> None:
    """For a user who agrees to nothing: once plan mode was on, nothing is written."""
    planning = False
    for tool in run.executed:
        planning = planning or (tool.name == "plan_mode" and tool.input.get("enable") is True)
        assert not (planning and tool.name in {"write", "edit"}), f"{tool.name} without approval"


def find(world: Callable[[], Any], *invariants: Any, **options: Any) -> str:
    with pytest.raises(InvariantBroken) as caught:
        explore(world, "Plan an omelette", *invariants, values=VALUES, **options)
    exploration: Any = caught.value.exploration
    return exploration.findings[0].script


@pytest.mark.slow
def test_a_plan_that_is_approved_and_rejected_in_one_message_is_found():
    world = make_world("Racing", confirm=True, tools=DECISIONS)
    script = find(world, decided_once, depth=4, runs=RUNS)
    assert "plan_approve" in script
    assert "plan_reject" in script or script.count("plan_approve") == 2


@pytest.mark.slow
def test_leaving_plan_mode_without_an_approval_is_found():
    script = find(
        make_world("Open", confirm=False, tools=WRITES),
        nothing_is_written_without_approval,
        depth=4,
        runs=RUNS,
    )
    assert script.count("plan_mode") == 2


@pytest.mark.slow
@pytest.mark.parametrize("confirm, tools", [(True, DECISIONS), (False, WRITES)])
def test_the_planner_of_the_example_breaks_neither(confirm: bool, tools: list[str]):  # noqa: FBT001 - a case
    invariants = [decided_once] if confirm else [decided_once, nothing_is_written_without_approval]
    world = make_world(confirm=confirm, tools=tools)
    found = explore(world, "Plan an omelette", *invariants, depth=4, runs=RUNS, values=VALUES)
    assert found.behaviours == RUNS
    assert len(found.states) > 6
    assert found.never_called == []


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["old", "new"])
def test_no_command_writes_while_planning(guard: str, monkeypatch: pytest.MonkeyPatch):
    shell: Any = import_module("shell")
    if guard == "old":
        monkeypatch.setattr(shell, "EXPANSION", re.compile(r"`|\$\(|<\(|>\("))
        monkeypatch.setattr(shell, "PUNCTUATION", ";&|<>")
        monkeypatch.setattr(shell, "HARMLESS_REDIRECTION", re.compile(r"\d?>&\d|\d?>\s*/dev/null"))
        monkeypatch.setitem(shell.WRITE_OPTIONS, "sort", re.compile(r"-o.*|--output.*"))
    inner = make_world(confirm=False, mocks={"edit": "ok", "write": "ok", "read": "ok"})

    def world() -> Any:
        rehearsal, planner = inner()
        planner.planning = True
        planner.folder = rehearsal.cwd
        (rehearsal.cwd / "a.txt").write_text("a")
        return rehearsal, planner

    def only_the_first_file(run: Run, planner: Any) -> None:
        files = sorted(path.name for path in planner.folder.iterdir())
        assert files == ["a.txt"], f"files: {files}"

    # One finding at a time: what was found is left out of the next search.
    commands = COMMANDS if guard == "new" else [*NOT_REFUSED_BEFORE, "echo x > /dev/null"]
    expected: set[str] = set() if guard == "new" else {*NOT_REFUSED_BEFORE}
    broken: list[str] = []
    while not broken or {*broken} != expected:
        values = {**VALUES, "bash.command": [c for c in commands if c not in broken]}
        try:
            explore(world, "Look", only_the_first_file, depth=4, runs=100, values=values)
        except InvariantBroken as error:
            exploration: Any = error.exploration
            script = exploration.findings[0].script
            broken.append(next(c for c in commands if json.dumps(c) in script))
        else:
            break
    assert {*broken} == expected
