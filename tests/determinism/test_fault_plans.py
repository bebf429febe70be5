"""A plan of faults: strict to read, and the same for the same seed in every process."""

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.determinism import KINDS, FaultInjector, Faults, parse_faults
from offbook.errors import InjectedFault, UsageError

SHOW_PLAN = """
from offbook.determinism.faults import FaultInjector, Faults
found = []
injector = FaultInjector(Faults(seed=11), found.append)
for number in range(40):
    injector.for_request(str(number), stream=number % 2 == 0)
    injector.for_call("tool", "bash" if number % 3 else "read")
    injector.for_call("host", "clock.now")
print(found)
"""


def inject(plan: Faults, requests: int = 10, *, stream: bool = True) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    injector = FaultInjector(plan, found.append)
    for number in range(requests):
        injector.for_request(f"r{number}", stream=stream)
    return found


@pytest.mark.parametrize(
    "plan, message",
    [
        (["rest"], "unknown fault 'rest'"),
        (["reset@0"], "invalid fault 'reset@0'"),
        (["reset@two"], "invalid fault 'reset@two'"),
        (["reset:bash"], "invalid fault 'reset:bash'"),
        (["status:200"], "invalid fault 'status:200'"),
        ("reset", "faults must be a list, got str"),
        ({"kind": ["reset"]}, "unknown field 'kind'"),
        ({"rate": 0}, r"faults\.rate: expected a number > 0, got 0"),
        ({"rate": 2}, r"faults\.rate: expected a number <= 1, got 2"),
        ({"seed": "a"}, r"faults\.seed: expected an integer, got a text"),
        ({"delay": -1}, r"faults\.delay: expected a number >= 0, got -1"),
    ],
)
def test_an_invalid_plan_is_refused_with_the_reason(plan: Any, message: str):
    with pytest.raises(UsageError, match=message):
        parse_faults(plan)


def test_a_misspelled_kind_gets_the_nearest_one():
    with pytest.raises(UsageError, match="reset"):
        Faults(("rest",))


def test_the_help_of_the_commands_lists_every_kind():
    from offbook.cli_options import FAULTS_HELP

    assert [kind for kind in KINDS if kind not in FAULTS_HELP.split()] == []


def test_an_entry_with_a_number_is_injected_there_and_nowhere_else():
    assert [(f["kind"], f["number"]) for f in inject(Faults(("reset@2", "stall@4")))] == [
        ("reset", 2),
        ("stall", 4),
    ]


def test_a_rate_of_one_breaks_every_request():
    assert len(inject(Faults(("reset",), rate=1), 10)) == 10


def test_another_seed_gives_other_faults():
    assert inject(Faults(seed=1), 40) != inject(Faults(seed=2), 40)


def test_every_kind_for_the_model_is_reached_by_some_seed():
    kinds = {f["kind"] for seed in range(30) for f in inject(Faults(seed=seed, rate=1))}
    assert kinds == {kind for kind in KINDS if not kind.startswith(("tool_", "host_"))}


def test_an_event_is_duplicated_in_streams_only():
    plan = Faults(("duplicate",), rate=1)
    assert inject(plan, stream=False) == []
    assert len(inject(plan, stream=True)) == 10


def test_an_entry_that_is_never_reached_is_listed():
    injector = FaultInjector(Faults(("reset@3", "stall@1")), lambda _: None)
    injector.for_request("a", stream=True)
    assert injector.find_missing().startswith("never injected: reset@3;")


def test_nothing_is_missing_once_a_random_fault_was_injected():
    injector = FaultInjector(Faults(("reset",), rate=1), lambda _: None)
    assert injector.find_missing().startswith("no fault was injected: the seed 0 with the rate 1")
    injector.for_request("a", stream=True)
    assert injector.find_missing() == ""


def test_a_named_tool_is_counted_by_itself():
    found: list[dict[str, Any]] = []
    injector = FaultInjector(Faults(("tool_error:bash@2",)), found.append)
    for name in ("bash", "read", "read", "bash"):
        injector.for_call("tool", name)
    assert [(f["name"], f["number"]) for f in found] == [("bash", 4)]


def test_a_failing_call_raises_and_a_slow_one_returns():
    injector = FaultInjector(Faults(("tool_error@1", "tool_slow@2"), delay=0), lambda _: None)
    with pytest.raises(InjectedFault, match="tool_error of bash"):
        injector.call_blocking("tool", "bash")
    injector.call_blocking("tool", "bash")
    assert injector.injected == 2


@given(st.integers(), st.floats(0.01, 1), st.integers(1, 30))
def test_the_same_seed_gives_the_same_faults(seed: int, rate: float, requests: int):
    plan = Faults(seed=seed, rate=rate)
    assert inject(plan, requests) == inject(plan, requests)


@given(st.integers(0, 1000), st.integers(1, 20))
def test_a_longer_run_begins_with_the_faults_of_a_shorter_one(seed: int, requests: int):
    plan = Faults(seed=seed)
    short, long = inject(plan, requests), inject(plan, requests + 10)
    assert long[: len(short)] == short


def test_three_processes_with_different_hash_seeds_get_the_same_faults():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SHOW_PLAN],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("'kind'") > 10
