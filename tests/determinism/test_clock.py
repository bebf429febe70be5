# ruff: noqa: S311, DTZ001, DTZ005 - the values of the standard library are tested
"""Clocks can be frozen; ids are counted or derived, never random."""

import datetime as dt
import os
import random
import runpy
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from inspect import getfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.determinism import (
    EPOCH,
    FROZEN_VARIABLE,
    SITECUSTOMIZE,
    FrozenClock,
    IdCounter,
    RunClock,
    SystemClock,
    replace_clock,
    stable_id,
)


def test_a_frozen_clock_does_not_advance():
    clock = FrozenClock(5)
    assert [clock.millis(), clock.millis()] == [5, 5]


@given(st.integers(0, 10**13), st.integers(0, 1000), st.integers(0, 1000))
def test_a_frozen_clock_moves_by_its_tick_and_by_advance(start: int, tick: int, step: int):
    clock = FrozenClock(start, tick)
    assert clock.millis() == start
    clock.advance(step)
    assert clock.millis() == start + tick + step


def test_the_system_clock_counts_milliseconds_since_1970():
    before = SystemClock().millis()
    assert 1_600_000_000_000 < before <= SystemClock().millis() < 10_000_000_000_000


def test_ids_are_counted_from_one_for_each_prefix():
    ids = IdCounter()
    assert [ids.next("call"), ids.next("run"), ids.next("call")] == ["call-1", "run-1", "call-2"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_a_stable_id_depends_only_on_its_parts(parts: list[str]):
    stable = stable_id("chatcmpl-", *parts)
    assert stable == stable_id("chatcmpl-", *parts)
    assert stable != stable_id("chatcmpl-", *parts, "more")
    assert stable.startswith("chatcmpl-")
    assert len(stable) == len("chatcmpl-") + 24


# --- A frozen Python process


@pytest.fixture
def frozen() -> Iterator[None]:
    clock = RunClock(EPOCH)
    undo = replace_clock(lambda: clock)
    yield
    undo()


UTC_TEXT = "2023-11-14T22:13:20"
# Lambdas: the functions are looked up in the frozen process.
READINGS: dict[str, tuple[Callable[[], object], object]] = {
    "time": (lambda: time.time() * 2, EPOCH * 2),
    "time_ns": (lambda: time.time_ns() // 10**9, EPOCH),
    "gmtime": (lambda: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()), UTC_TEXT),
    "localtime": (lambda: time.mktime(time.localtime()), EPOCH),
    "ctime": (lambda: time.ctime().split(), time.ctime(EPOCH).split()),
    "strftime": (lambda: time.strftime("%c"), time.strftime("%c", time.localtime(EPOCH))),
    "date.today": (lambda: dt.date.today().year, 2023),  # noqa: DTZ011 - what is tested
    "datetime.now": (lambda: dt.datetime.now(dt.UTC).isoformat(), f"{UTC_TEXT}+00:00"),
    "datetime.today": (lambda: dt.datetime.today().timestamp(), EPOCH),  # noqa: DTZ002 - as above
    "datetime.utcnow": (lambda: getattr(dt.datetime, "utcnow")().isoformat(), UTC_TEXT),  # noqa: B009 - deprecated
}


@pytest.mark.parametrize("name", READINGS)
def test_every_reading_of_a_frozen_process_is_its_second(name: str, frozen: None):
    read, expected = READINGS[name]
    assert read() == expected


@pytest.mark.parametrize(
    "name, expected",
    [("gmtime", time.gmtime(0)), ("localtime", time.localtime(0)), ("ctime", time.ctime(0))],
)
def test_a_frozen_process_still_converts_a_given_second(name: str, expected: object, frozen: None):
    assert getattr(time, name)(0) == expected


class Later(dt.datetime):
    """A class of the user."""


def test_a_class_of_the_user_is_frozen_too(frozen: None):
    now = Later.now(dt.UTC)
    assert (type(now), now.isoformat()) == (Later, f"{UTC_TEXT}+00:00")
    assert type(Later.today()) is Later


def test_all_functions_are_restored():
    before = {name: vars(owner)[name] for owner in (time, os, random) for name in vars(owner)}
    methods = {name: vars(dt.datetime)[name] for name in ("now", "utcnow")}
    undo = replace_clock(lambda: None)
    assert {name: vars(dt.datetime)[name] for name in methods} != methods
    assert abs(dt.datetime.now(dt.UTC).timestamp() - time.time()) < 3600
    undo()
    assert {name: vars(dt.datetime)[name] for name in methods} == methods
    assert before == {
        name: vars(owner)[name] for owner in (time, os, random) for name in vars(owner)
    }
    assert type(vars(random)["_inst"]) is random.Random


# --- A clock that moves, with random values

RANDOM: dict[str, Callable[[], object]] = {
    "uuid4": lambda: str(uuid.uuid4()),
    "secrets": lambda: secrets.token_hex(8),
    "random": lambda: random.random() * 2,
    "randint": lambda: random.randint(0, 10**9),
    "choice": lambda: random.choice(range(10**9)),
    "shuffle": lambda: random.sample(range(10**9), 9),
    "urandom": lambda: os.urandom(9),
    "a generator": lambda: random.Random().random(),
    "its state": lambda: (random.seed(), random.setstate(random.getstate()), random.random()),
}


def read_random(clock: RunClock, name: str) -> list[object]:
    undo = replace_clock(lambda: clock)
    try:
        return [RANDOM[name]() for _ in range(3)]
    finally:
        undo()


@pytest.mark.parametrize("name", RANDOM)
def test_random_values_are_those_of_the_seed(name: str):
    first = read_random(RunClock(0, seed="1"), name)
    assert first == read_random(RunClock(0, seed="1"), name)
    assert first != read_random(RunClock(0, seed="2"), name)
    assert first[0] != first[1]


def test_the_seed_of_an_agent_is_respected():
    clock = RunClock(0, seed="1")
    undo = replace_clock(lambda: clock)
    random.seed(5)
    seen = random.randint(0, 10**9)
    random.seed()
    undo()
    assert seen == random.Random(5).randint(0, 10**9)
    assert not clock.own_seed


def test_a_part_has_random_values_of_its_own():
    names = iter(["", "tool", "", "", "", ""])
    clock = RunClock(0, seed="1", part=lambda: next(names))
    alone = RunClock(0, seed="1")
    first, tool, second = (clock.stream().random() for _ in range(3))
    assert [first, second] == [alone.stream().random(), alone.stream().random()]
    assert tool not in {first, second}


def test_a_clock_moves_forward_only():
    clock = RunClock(5.5, utc_offset=7200)
    clock.move_to(4)
    assert clock.now() == 5.5
    clock.move_to(86400)
    undo = replace_clock(lambda: clock)
    seen = dt.datetime.now(), time.localtime().tm_hour, dt.datetime.now(dt.UTC).hour, time.ctime()
    undo()
    assert seen == (dt.datetime(1970, 1, 2, 2), 2, 0, "Fri Jan  2 02:00:00 1970")


def test_an_agent_that_waits_for_a_time_goes_on():
    clock = RunClock(100, patience=0.001)
    undo = replace_clock(lambda: clock)
    while time.time() < 100.005:
        pass
    undo()
    assert RunClock(100, patience=1000).now() == 100


def test_a_clock_runs_on():
    clock = RunClock(100)
    clock.run_on()
    assert 100 < clock.now() < 1000


def start_frozen(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Do what Python does when it starts with the module as its `sitecustomize`."""
    monkeypatch.setenv(FROZEN_VARIABLE, "86400.5")
    monkeypatch.delitem(sys.modules, SITECUSTOMIZE, raising=False)
    return runpy.run_path(getfile(replace_clock), run_name=SITECUSTOMIZE)["undo"]


def test_the_sitecustomize_freezes_the_second_of_the_variable(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sys, "path", [str(Path(getfile(replace_clock)).parent)])
    undo = start_frozen(monkeypatch)
    seen = time.time(), sys.path
    undo()
    monkeypatch.undo()  # pytest itself imports modules to report a failure
    assert seen == (86400.5, [])


def test_the_sitecustomize_that_it_hides_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hidden = tmp_path / f"{SITECUSTOMIZE}.py"
    hidden.write_text("import sys, time\nsys.seen_second = time.time()\n")
    monkeypatch.setattr(sys, "seen_second", None, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    start_frozen(monkeypatch)()
    assert vars(sys)["seen_second"] == 86400.5
