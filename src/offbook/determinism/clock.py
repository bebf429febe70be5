"""Time comes in here, and nowhere else."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

# --- Time comes in here, and nowhere else.

EPOCH = 1_700_000_000
"""The second at which every rehearsal takes place."""


class Clock(Protocol):
    """Tells the time, in milliseconds since 1970."""

    def millis(self) -> int:
        """The time now."""
        ...


class SystemClock:
    """The machine's own time."""

    def millis(self) -> int:
        """The time now."""
        return time.time_ns() // 1_000_000


class FrozenClock:
    """A time that stands still, or moves `tick` milliseconds each time it is asked."""

    def __init__(self, start: int = EPOCH * 1000, tick: int = 0) -> None:
        self._at = start
        self._tick = tick

    def millis(self) -> int:
        """The time now; afterwards one tick later."""
        at = self._at
        self._at += self._tick
        return at

    def advance(self, millis: int) -> None:
        """Let time pass."""
        self._at += millis


# --- Names for things that need one: counted, never random, so that two runs agree.


class IdCounter:
    """Counts names, for each prefix from 1: `call-1`, `call-2`, `run-1`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, prefix: str) -> str:
        """The next name with this prefix."""
        count = self._counts.get(prefix, 0) + 1
        self._counts[prefix] = count
        return f"{prefix}-{count}"


def stable_id(prefix: str, *parts: str, length: int = 24) -> str:
    """A name that looks like a provider's, and is always the same for the same parts."""
    digest = blake2b("\0".join(parts).encode(), digest_size=32).hexdigest()
    return f"{prefix}{digest[:length]}"


# --- Wall-clock time that stands still, for a whole Python process.

FROZEN_VARIABLE = "OFFBOOK_FROZEN"
SITECUSTOMIZE = "sitecustomize"


def freeze_time(at: float) -> None:
    """Let it be this second, whoever asks, from now on."""
    _freeze_dates(at)
    time.time = lambda: at
    time.time_ns = lambda: int(at * 1_000_000_000)
    for name in ("gmtime", "localtime", "ctime"):
        setattr(time, name, _asked_at(getattr(time, name), at))
    real, told = time.strftime, time.localtime

    def strftime(format: str, t: Any = None, /) -> str:  # noqa: A002 - its own word
        return real(format, told() if t is None else t)

    time.strftime = strftime


def _asked_at(real: Any, at: float) -> Any:
    def asked(secs: float | None = None, /) -> Any:
        return real(at if secs is None else secs)

    return asked


def _freeze_dates(at: float) -> None:
    real_date, real_datetime = dt.date, dt.datetime

    class OfDate(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real_date)

    class OfDatetime(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real_datetime)

    class Date(real_date, metaclass=OfDate):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(at)

    class Datetime(real_datetime, metaclass=OfDatetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(at, tz)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(at)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(at, dt.UTC).replace(tzinfo=None)

    for kind, name in ((Date, "date"), (Datetime, "datetime")):
        kind.__name__ = kind.__qualname__ = name
        kind.__module__ = "datetime"
        setattr(dt, name, kind)


def frozen_environment(folder: Path, at: float) -> dict[str, str]:
    """What a Python process needs in its environment to be frozen; the file is put in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(__file__, folder / f"{SITECUSTOMIZE}.py")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {FROZEN_VARIABLE: str(at), "PYTHONPATH": path}


def _begin() -> None:
    """Freeze, then let the `sitecustomize` come that was there before this one."""
    freeze_time(float(os.environ[FROZEN_VARIABLE]))
    here = str(Path(__file__).parent)
    sys.path[:] = [place for place in sys.path if place != here]
    ours = sys.modules.pop(SITECUSTOMIZE)
    try:
        __import__(SITECUSTOMIZE)
    except ImportError:
        sys.modules[SITECUSTOMIZE] = ours


if __name__ == SITECUSTOMIZE:
    _begin()
