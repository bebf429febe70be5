"""A Python process whose time stands still.

It is started with a copy of this file as its `sitecustomize`, and with the second in
OFFBOOK_FROZEN. So this module imports the standard library only. Monotonic time goes on: timeouts
and event loops need it.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FROZEN_VARIABLE = "OFFBOOK_FROZEN"
SITECUSTOMIZE = "sitecustomize"


def frozen_environment(folder: Path, second: float) -> dict[str, str]:
    """Return the variables that freeze a Python process; its `sitecustomize` is put in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(__file__, "rb") as source:  # noqa: PTH123 - pathlib takes 8 ms to import
        (folder / f"{SITECUSTOMIZE}.py").write_bytes(source.read())
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {FROZEN_VARIABLE: str(second), "PYTHONPATH": path}


def freeze_time(second: float) -> None:
    """Replace the functions of `time` and the classes of `datetime` in this process."""
    _freeze_dates(second)
    time.time = lambda: second
    time.time_ns = lambda: int(second * 1_000_000_000)

    def with_default(original: Any) -> Any:
        def frozen(secs: float | None = None, /) -> Any:
            return original(second if secs is None else secs)

        return frozen

    for name in ("gmtime", "localtime", "ctime"):
        setattr(time, name, with_default(getattr(time, name)))
    original_strftime, localtime = time.strftime, time.localtime

    def strftime(format: str, t: Any = None, /) -> str:  # noqa: A002 - the parameter of the original
        return original_strftime(format, localtime() if t is None else t)

    time.strftime = strftime


def _freeze_dates(second: float) -> None:
    real_date, real_datetime = dt.date, dt.datetime

    # libraries in C create real dates: isinstance must accept these, too
    class DateMeta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real_date)

    class DatetimeMeta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real_datetime)

    class Date(real_date, metaclass=DateMeta):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(second)

    class Datetime(real_datetime, metaclass=DatetimeMeta):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(second, tz)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(second)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(second, dt.UTC).replace(tzinfo=None)

    for kind, name in ((Date, "date"), (Datetime, "datetime")):
        kind.__name__ = kind.__qualname__ = name
        kind.__module__ = "datetime"  # pickle looks it up there
        setattr(dt, name, kind)


if __name__ == SITECUSTOMIZE:  # Python starts, and this is the copy of the file
    freeze_time(float(os.environ[FROZEN_VARIABLE]))
    # then import the `sitecustomize` that this one hides, if there is one
    here = os.path.dirname(__file__)  # noqa: PTH120 - without pathlib, as above
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop(SITECUSTOMIZE)
    try:
        __import__(SITECUSTOMIZE)
    except ImportError:
        sys.modules[SITECUSTOMIZE] = ours
