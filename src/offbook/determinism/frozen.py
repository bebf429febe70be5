"""Wall-clock time that stands still, for a whole Python process.

A process that is to be frozen is started with a copy of this file as its `sitecustomize`, and the
second at which time stands in OFFBOOK_FROZEN. So nothing here needs anything but Python itself.
Time that only measures how long something takes goes on: timeouts and event loops need it.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

VARIABLE = "OFFBOOK_FROZEN"
NAME = "sitecustomize"


def freeze(at: float) -> None:
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
    shutil.copyfile(__file__, folder / f"{NAME}.py")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {VARIABLE: str(at), "PYTHONPATH": path}


def _begin() -> None:
    """Freeze, then let the `sitecustomize` come that was there before this one."""
    freeze(float(os.environ[VARIABLE]))
    here = str(Path(__file__).parent)
    sys.path[:] = [place for place in sys.path if place != here]
    ours = sys.modules.pop(NAME)
    try:
        __import__(NAME)
    except ImportError:
        sys.modules[NAME] = ours


if __name__ == NAME:
    _begin()
