"""A search plays generated models, and reports the smallest script that breaks an invariant."""

import asyncio
import math
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from offbook import say, session, when
from offbook.errors import InvariantBroken, OffbookWarning, RunError, UsageError
from offbook.explore import (
    Counterexample,
    Exploration,
    at_most,
    ends_within,
    explore,
    never_before,
    replay,
    run_rendered,
)
from offbook.explore.search import describe
from offbook.runs import Run
from tests.explore.worlds import MOCKS, PROMPT, Shop, broken_shop, fixed_shop, never_twice
from tests.forked import run_python

RUNS = 60  # the bug of the shop is found in fewer
MANY_RUNS = 200
ROOT = Path(__file__).parents[2]


def find(world: Any = broken_shop, *invariants: Any, **options: Any) -> list[Counterexample]:
    arguments: dict[str, Any] = {"runs": RUNS, **options}
    with pytest.raises(InvariantBroken) as caught:
        explore(world, PROMPT, *(invariants or (never_twice,)), **arguments)
    return cast("Exploration", caught.value.exploration).findings


@pytest.fixture(scope="module")
def finding() -> Counterexample:
    """Return what a search finds in the shop."""
    (finding,) = find()
    return finding


def test_two_refunds_at_once_are_found_and_shrunk_to_one_message(finding: Counterexample):
    assert finding.script == (
        'when("Refund order 7", [\n'
        '    [call("refund", {"number": 7}), call("refund", {"number": 7})],\n'
        '    say("Done."),\n'
        "])"
    )


def test_a_tool_that_succeeds_while_a_script_is_made_smaller_has_succeeded():
    def world() -> Any:
        def extension(api: Any) -> None:
            @api.tool("find", "Find.", {"type": "object", "properties": {"name": {"enum": ["b"]}}})
            def find(params: Any, ctx: Any) -> str:  # pyright: ignore[reportUnusedFunction]
                if params.get("name") == "b":
                    raise ValueError("there is none")
                return "found"

        return session(extensions=[extension], mock_tools=MOCKS)

    def never_find(run: Run, _: object) -> bool:
        return "find" not in [made.tool_name for made in run.events.tool_calls]

    with pytest.raises(InvariantBroken) as caught:
        explore(world, PROMPT, never_find, runs=1, seed=2)
    found = cast("Exploration", caught.value.exploration)
    assert (found.called, found.never_succeeded) == ({"find"}, [])


def test_the_script_fails_when_it_is_pasted(finding: Counterexample):
    with pytest.raises(InvariantBroken, match=r"refunded \[7, 7\]"):
        replay(broken_shop, run_rendered(finding.script), never_twice)


def test_the_script_passes_when_the_bug_is_fixed(finding: Counterexample):
    assert replay(fixed_shop, run_rendered(finding.script), never_twice).tools


@pytest.mark.parametrize("is_process, behaviours", [(False, 5), (True, 3)])
def test_an_agent_that_is_a_process_is_searched_for_a_shorter_time(
    monkeypatch: pytest.MonkeyPatch, *, is_process: bool, behaviours: int
):
    monkeypatch.setattr("offbook.explore.search.RUNS", 5)
    monkeypatch.setattr("offbook.explore.search.RUNS_OF_PROCESS", 3)

    def world() -> Any:
        rehearsal, shop = fixed_shop()
        cast("Any", rehearsal.subject).starts_process = is_process
        return rehearsal, shop

    assert explore(world, PROMPT, never_twice, deadline=None).behaviours == behaviours


def test_an_agent_without_the_bug_passes():
    found = explore(fixed_shop, PROMPT, never_twice, runs=MANY_RUNS)
    assert (found.behaviours, found.findings, found.never_called) == (MANY_RUNS, [], [])


def test_the_same_seed_finds_the_same():
    assert find(seed=3) == find(seed=3)


def test_another_seed_makes_other_moves():
    assert find(seed=3)[0].run != find(seed=5)[0].run


def test_the_message_has_the_script_the_run_and_the_seed():
    with pytest.raises(InvariantBroken) as caught:
        explore(broken_shop, PROMPT, never_twice, runs=RUNS, seed=5)
    message = str(caught.value)
    assert message.startswith("never_twice: refunded [")
    assert 'call("refund"' in message
    assert "seed=5" in message


def no_refund(_: Run, shop: Shop) -> bool:
    return shop.refunds == []


def test_an_invariant_may_return_false():
    (finding,) = find(broken_shop, no_refund)
    assert finding.message == "it returned False"


def test_an_invariant_that_raises_is_an_error_of_the_test():
    def broken(run: Run, shop: Any):
        raise KeyError("typo")

    with pytest.raises(UsageError, match="the invariant broken raised KeyError"):
        explore(fixed_shop, PROMPT, broken, runs=5)


def test_the_other_invariants_go_on_after_one_that_raises():
    def broken(run: Run, shop: Any):
        raise KeyError("typo")

    assert [finding.invariant for finding in find(broken_shop, broken, never_twice)] == [
        "never_twice"
    ]


def crashing_world():
    def extension(api: Any):
        @api.tool(
            "divide", parameters={"type": "object", "properties": {"by": {"type": "integer"}}}
        )
        def divide(params: Any, ctx: Any):
            if params.get("by") == 0:
                raise SystemError("it crashed")
            return "1"

    return session(extensions=[extension], mock_tools=MOCKS)


def test_an_exception_of_the_agent_is_a_violation():
    (finding,) = find(crashing_world, seed=1)
    assert finding.invariant == "no unhandled exception"
    assert 'call("divide", {"by": 0})' in finding.script


def test_a_documented_way_of_giving_up_is_counted():
    found = explore(crashing_world, PROMPT, runs=RUNS, seed=1, gives_up=Exception)
    assert sum(found.gave_up.values()) > 0


def test_a_script_that_repeats_replaces_one_that_did_not(tmp_path: Path):
    def mostly_never_twice(run: Run, shop: Any):
        if not (tmp_path / "played").exists():  # the first behaviour, and never again
            (tmp_path / "played").touch()
            raise AssertionError("now and then")
        never_twice(run, shop)

    (finding,) = find(broken_shop, mostly_never_twice)
    assert finding.repeats
    assert "refund" in finding.script


def test_a_subject_that_is_not_deterministic_is_reported_with_the_whole_script():
    decide = random.Random(7)  # noqa: S311 - not for secrets

    def sometimes(run: Run, state: Any):
        assert decide.random() < 0.9, "now and then"

    (finding,) = find(fixed_shop, sometimes)
    assert not finding.repeats


def test_the_message_says_that_the_agent_is_not_deterministic():
    seen: list[Run] = []

    def only_once(run: Run, state: Any):
        seen.append(run)
        assert len(seen) != 3, "once"

    with pytest.raises(InvariantBroken, match="the agent is not deterministic"):
        explore(fixed_shop, PROMPT, only_once, runs=5)


def test_a_finding_that_repeats_comes_before_one_that_does_not():
    found = Exploration(PROMPT, 0)
    found.findings += [
        Counterexample("flaky", "once", "", 1, (), 1, repeats=False),
        Counterexample("broken", "always", "", 2, (), 1),
    ]
    message = describe(found)
    assert message.index("broken: always") < message.index("flaky: once")


def test_a_script_that_breaks_only_a_used_process_is_reported_as_such():
    opened: list[int] = []  # by the worlds of one process

    def world() -> Any:
        opened.append(1)
        return fixed_shop()

    def third_time(run: Run, state: Any):
        assert len(opened) < 3, "the third world of a process"

    (finding,) = find(world, third_time)
    assert (finding.repeats, finding.keeps_state) == (False, True)


def test_what_only_half_a_character_breaks_is_no_finding_of_an_invariant():
    def no_halves(run: Run, shop: Any):
        assert "\\ud83d" not in repr(run.events.tool_calls), "half a character"

    def world() -> Any:
        def extension(api: Any) -> None:
            @api.tool(
                "find", parameters={"type": "object", "properties": {"n": {"type": "string"}}}
            )
            def find(params: Any, ctx: Any) -> str:
                return "found"

        return session(extensions=[extension], mock_tools=MOCKS)

    assert find(world, no_halves, runs=MANY_RUNS, values={"n": ["\ud83d", "a"]})  # it is tried
    assert explore(world, PROMPT, no_halves, runs=MANY_RUNS).findings == []


def test_the_message_says_that_the_agent_keeps_something():
    opened: list[int] = []

    def third_time(run: Run, state: Any):
        opened.append(1)
        assert len(opened) < 3, "the third run of a process"

    with pytest.raises(InvariantBroken, match="keeps something from one run to the next"):
        explore(fixed_shop, PROMPT, third_time, runs=5)


def test_an_exhaustive_search_finds_the_shortest_script():
    (finding,) = find(depth=1, runs=2_000)
    assert finding.script.count("call(") == 2


def test_an_exhaustive_search_continues_equal_states_once():
    found = explore(fixed_shop, PROMPT, never_twice, depth=2, runs=1_000)
    # The state is the list of refunds. Only the scripts that lead to a new one are continued.
    first = explore(fixed_shop, PROMPT, never_twice, depth=1, runs=1_000)
    assert len(found.states) == len(first.states)
    assert found.behaviours < first.behaviours * (len(first.states) + 1)


def test_an_agent_without_tools_is_explored_with_texts_and_a_warning():
    async def agent(prompt: str) -> str:
        import openai

        client = openai.AsyncOpenAI(api_key="x")
        reply = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}]
        )
        return reply.choices[0].message.content or ""

    with pytest.warns(OffbookWarning, match="offers no tools"):
        explore(lambda: agent, PROMPT, runs=3)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((7, PROMPT), {}, "the world must be a function"),
        ((fixed_shop, ""), {}, "takes the prompt second"),
        ((fixed_shop, PROMPT, "never"), {}, "an invariant must be a function"),
        ((fixed_shop, PROMPT), {"runs": 0}, "runs and steps must be 1 or more"),
        ((fixed_shop, PROMPT), {"values": {"number": "7"}}, r"values\['number'\] must be a list"),
        ((fixed_shop, PROMPT), {"run": 7}, "run"),
        ((lambda: (1, 2, 3), PROMPT), {}, "the world has 3 parts"),
    ],
)
def test_wrong_usage_is_refused(arguments: Any, options: Any, message: Any):
    with pytest.raises((UsageError, TypeError), match=message):
        explore(*arguments, **options)


async def test_a_search_in_an_event_loop_is_refused():
    with pytest.raises(UsageError, match="cannot be used in an `async def`"):
        explore(fixed_shop, PROMPT)


def test_values_of_the_user_are_used():
    used: list[Any] = []

    def note(run: Run, shop: Any):
        used.extend(tool.input.get("number") for tool in run.executed if tool.name == "refund")

    explore(fixed_shop, PROMPT, note, runs=20, values={"refund.number": [70, 71]}, deadline=None)
    assert {70, 71} <= set(used)


def test_the_fixture_explores_and_keeps_one_trace(offbook: Any):
    def world():
        shop = Shop(locked=True)
        return offbook.session(extensions=[shop.extension]), shop

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = offbook.explore(world, PROMPT, never_twice, runs=5)
    assert found.behaviours == 5
    assert len(offbook.traces) == 1


def answer_at_once(prompt: str) -> str:
    return prompt


def test_a_replay_in_which_the_agent_never_asks_is_no_pass():
    with pytest.raises(RunError, match="never called the model"):
        replay(lambda: answer_at_once, when("Go", [say("never")]))


def test_a_search_in_which_the_agent_never_asks_is_no_pass():
    with pytest.raises(RunError, match="nothing was explored: the agent never called the model"):
        explore(lambda: answer_at_once, PROMPT, runs=2)


async def awaited(run: Run, shop: Shop) -> None:
    assert not shop.refunds


def generated(run: Run, shop: Shop) -> Any:
    yield shop.refunds == []


def returns(make: Callable[[], object]) -> Any:
    def invariant(run: Run, shop: Shop) -> object:
        return make()

    return invariant


@pytest.mark.parametrize(
    "invariant, message",
    [
        (awaited, "the invariant awaited would never run: it is async or a generator"),
        (generated, "the invariant generated would never run: it is async or a generator"),
        (returns(lambda: 0), "returned int, which is no verdict"),
        (returns(tuple), "returned tuple, which is no verdict"),
        (returns(lambda: asyncio.sleep(0)), "returned coroutine, which never ran"),
        (returns(list), "returned list, which is no verdict"),
        (never_before("refnd", "find_order"), "never offered the tool 'refnd'\n.*mean 'refund'"),
        (at_most(2, "refnd"), "the agent never offered the tool 'refnd'"),
    ],
)
def test_an_invariant_that_checks_nothing_is_refused(invariant: Any, message: str):
    with pytest.raises(UsageError, match=message):
        explore(fixed_shop, PROMPT, invariant, runs=2)
    with pytest.raises(UsageError, match=message):
        replay(fixed_shop, when(PROMPT, [say("no")]), invariant)


@pytest.mark.parametrize("make", [lambda: at_most(-1, "a"), lambda: ends_within(math.inf)])  # pyright: ignore[reportArgumentType] - what it refuses
def test_an_invariant_with_a_meaningless_limit_is_refused(make: Callable[[], object]):
    with pytest.raises(UsageError, match="expected a number of 0 or more"):
        make()


def test_an_invariant_may_return_false_with_the_reason():
    with pytest.raises(InvariantBroken, match=": no refund at all"):
        explore(broken_shop, PROMPT, returns(lambda: (False, "no refund at all")), runs=1)


SHOW_SEARCH = """
from offbook.errors import InvariantBroken
from offbook.explore import explore
from tests.explore.worlds import PROMPT, broken_shop, never_twice
try:
    explore(broken_shop, PROMPT, never_twice, runs=40, seed=5)
except InvariantBroken as error:
    print(error)
"""


@pytest.mark.slow
def test_three_processes_with_different_hash_seeds_find_the_same_example():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SHOW_SEARCH],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(outputs) == 1
    assert "found by run" in outputs.pop()


XDIST_TEST = """
import pytest
from offbook.determinism.faults import FaultInjector, Faults
from offbook.errors import InvariantBroken
from offbook.explore import explore
from tests.explore.worlds import PROMPT, broken_shop, never_twice

@pytest.mark.parametrize("number", range(4))
def test_search(number, worker_id):
    with pytest.raises(InvariantBroken) as caught:
        explore(broken_shop, PROMPT, never_twice, runs=40, seed=5)
    faults = []
    injector = FaultInjector(Faults(seed=5), faults.append)
    for _ in range(40):
        injector.for_request("r", stream=True)
    with open(f"{number}-{worker_id}.txt", "w") as file:
        file.write(f"{caught.value}{faults}")
"""


@pytest.mark.slow
def test_the_workers_of_xdist_find_the_same_example_and_faults(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(XDIST_TEST)
    ended = run_python(
        *("-m", "pytest", "-q", "-n", "2", "-p", "no:randomly", "test_it.py"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        forks=True,
    )
    assert ended.returncode == 0, ended.stdout
    files = list(tmp_path.glob("*-gw*.txt"))
    assert len(files) == 4
    assert {path.stem.partition("-")[2] for path in files} == {"gw0", "gw1"}
    assert len({path.read_text() for path in files}) == 1
