"""Clocks can be frozen; ids are counted or derived, never random."""

import datetime as dt
import pickle
import runpy
import sys
import time
from collections.abc import Callable
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
    SystemClock,
    freeze_time,
    stable_id,
)

REAL_DATETIME = dt.datetime
REPLACED = ("time", "time_ns", "gmtime", "localtime", "ctime", "strftime")


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
def thawed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore after the test what a frozen process replaces."""
    for name in REPLACED:
        monkeypatch.setattr(time, name, getattr(time, name))
    for name in ("date", "datetime"):
        monkeypatch.setattr(dt, name, getattr(dt, name))


@pytest.fixture
def frozen(thawed: None) -> None:
    freeze_time(EPOCH)


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


def test_a_real_date_is_an_instance_of_the_frozen_classes(frozen: None):
    real = REAL_DATETIME.fromtimestamp(EPOCH, dt.UTC)
    assert dt.datetime is not REAL_DATETIME
    assert isinstance(real, dt.datetime)
    assert isinstance(real, dt.date)
    assert not isinstance(real.date(), dt.datetime)


def test_a_frozen_datetime_can_be_pickled(frozen: None):
    now = dt.datetime.now(dt.UTC)
    assert pickle.loads(pickle.dumps(now)) == now  # noqa: S301 - our own bytes


def start_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what Python does when it starts with the module as its `sitecustomize`."""
    monkeypatch.setenv(FROZEN_VARIABLE, "86400.5")
    monkeypatch.delitem(sys.modules, SITECUSTOMIZE, raising=False)
    runpy.run_path(getfile(freeze_time), run_name=SITECUSTOMIZE)


def test_the_sitecustomize_freezes_the_second_of_the_variable(
    thawed: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "path", [str(Path(getfile(freeze_time)).parent)])
    start_frozen(monkeypatch)
    seen = time.time(), sys.path
    monkeypatch.undo()  # pytest itself imports modules to report a failure
    assert seen == (86400.5, [])


def test_the_sitecustomize_that_it_hides_is_imported(
    thawed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hidden = tmp_path / f"{SITECUSTOMIZE}.py"
    hidden.write_text("import sys, time\nsys.seen_second = time.time()\n")
    monkeypatch.setattr(sys, "seen_second", None, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    start_frozen(monkeypatch)
    assert vars(sys)["seen_second"] == 86400.5
