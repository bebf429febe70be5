"""The clock and the random values of an agent, in this process or in another one.

    clock = RunClock(1_700_000_000, seed="7")
    undo = replace_clock(lambda: clock)     # time.time(), datetime.now(), uuid4(), random(), …
    clock.move_to(1_700_000_005)
    undo()

The time changes only if it is moved. Monotonic time goes on: timeouts and event loops need it.
Another Python process is started with a copy of this file as its `sitecustomize`, and with the
clock in OFFBOOK_FROZEN. So this module imports the standard library only.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import struct
import sys
import time
from functools import partial
from mmap import mmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from random import Random
    from typing import Any

    FindClock = Callable[[], "RunClock | None"]

FROZEN_VARIABLE = "OFFBOOK_FROZEN"
SITECUSTOMIZE = "sitecustomize"
PATIENCE = 30.0  # the time of a tape moves on by this many seconds if the run does not
RANDOM_MODULES = {__name__, "random", "secrets", "uuid"}
CLOCK_FILE, STARTS_FILE = "clock", "starts"  # next to the `sitecustomize`


class RunClock:
    """The time of a run in seconds since 1970, and its random values.

    With `patience`, an agent that waits for a time in a loop goes on: the time moves by that many
    seconds whenever it has stood still as long. `utc_offset` is that of the local time, in seconds;
    without it, it is that of the machine. Without a `seed`, random values are real ones. `part`
    names the part of the agent that is running: each one has other random values, since a
    tool that is replayed takes none. So has each module: some take values when they are imported.
    """

    def __init__(
        self,
        second: float,
        *,
        seed: str = "",
        utc_offset: int | None = None,
        patience: float | None = None,
        part: Callable[[], str] = str,
    ) -> None:
        self.seed = seed
        self.utc_offset = utc_offset
        self.processes: int | None = None  # that have read it; None if it was not shared
        self._patience = patience
        self._part = part
        self._file: Any = bytearray(struct.pack("d", second))
        self._folder = ""
        self._running_since: float | None = None
        self._seen = 0.0, 0.0  # a second, and the monotonic time since when it is shown
        self._streams: dict[str, Random] = {}
        self._process = os.getpid()
        self.steps = 0  # how often it was moved
        self.own_seed = False  # the agent has called `random.seed(…)`

    @property
    def second(self) -> float:
        """The time to which the clock was moved last."""
        (second,) = struct.unpack("d", self._file[:8])
        return second

    def move_to(self, second: float) -> None:
        """Move the time forward; it never goes back."""
        self.steps += 1
        if second > self.second:
            self._file[:8] = struct.pack("d", second)

    def run_on(self) -> None:
        """Let the time pass from now on."""
        self._running_since = self._running_since or time.monotonic()

    def now(self) -> float:
        """Return the time of the run."""
        second, monotonic = self.second, time.monotonic()
        if self._running_since is not None:
            return second + monotonic - self._running_since
        if self._patience is None:
            return second
        if self._seen[0] != second:
            self._seen = second, monotonic
        return second + (monotonic - self._seen[1]) // self._patience * self._patience

    def stream(self) -> Random:
        """Return the random values of the part that is running, for the module that asks."""
        from random import Random

        if self._process != (process := os.getpid()):  # a fork has other values
            self._process = process
            self._streams = {}
            self.seed += f"/{self._count_start() if self._folder else process}"
        part = f"{self._part()}/{_calling_module()}"
        if part not in self._streams:
            self._streams[part] = Random(f"{self.seed}/{part}")  # noqa: S311 - to be repeated
        return self._streams[part]

    # --- In other processes

    def share(self, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a Python process with this clock, which is put in a folder."""
        if self._folder != str(folder):
            (folder / CLOCK_FILE).write_bytes(bytes(self._file[:8]))
            (folder / STARTS_FILE).touch()
            self._attach(str(folder))
        offset = "" if self.utc_offset is None else self.utc_offset
        value = f"{self.second!r},{self._patience or ''},{offset},{self.seed}"
        return {**frozen_environment(folder, 0, environment), FROZEN_VARIABLE: value}

    def _attach(self, folder: str) -> None:
        with open(os.path.join(folder, CLOCK_FILE), "r+b") as file:  # noqa: PTH118, PTH123 - as below
            self._file = mmap(file.fileno(), 8)
        self._folder = folder

    def _count_start(self) -> int:
        """Note the start of a process, and return how many there were."""
        path = os.path.join(self._folder, STARTS_FILE)  # noqa: PTH118 - as below
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)

    def end_sharing(self) -> None:
        """Count the processes that have read the clock; its folder may be removed afterwards."""
        if self._folder:
            size = os.stat(os.path.join(self._folder, STARTS_FILE)).st_size  # noqa: PTH116, PTH118
            self.processes = (self.processes or 0) + size
            self._file, self._folder = bytearray(self._file[:8]), ""

    @classmethod
    def of_process(cls, value: str, folder: str) -> RunClock:
        """Return the clock of this process, from its variable and the folder of the hook."""
        second, patience, offset, seed = (*value.split(","), "", "", "")[:4]
        clock = cls(
            float(second),
            seed=seed,
            utc_offset=int(offset) if offset else None,
            patience=float(patience) if patience else None,
        )
        if seed:
            clock._attach(folder)
            clock.seed += f"/{clock._count_start()}"
        return clock


def _calling_module() -> str:
    """Return the name of the module that wants random values from the standard library."""
    frame: Any = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
    while frame is not None and frame.f_globals.get("__name__") in RANDOM_MODULES:
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))


def frozen_environment(
    folder: Path, second: float, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables that freeze a Python process; its `sitecustomize` is put in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(__file__, "rb") as source:  # noqa: PTH123 - pathlib takes 8 ms to import
        (folder / f"{SITECUSTOMIZE}.py").write_bytes(source.read())
    path = os.pathsep.join(filter(None, (str(folder), environment.get("PYTHONPATH"))))
    return {FROZEN_VARIABLE: str(second), "PYTHONPATH": path}


# --- The functions that read the clock and random values

REPLACED_TIMES = ("time", "time_ns", "gmtime", "localtime", "ctime", "strftime")
REPLACED_RANDOM = ("random", "getrandbits", "seed", "getstate", "setstate")


def replace_clock(find: FindClock) -> Callable[[], None]:
    """Let all functions that read the time, or random values, use the clock that `find` returns.

    Where it returns None, they are as before. Return a function that undoes it.
    """
    undo = [
        *(_set(time, name, function) for name, function in _time_functions(find).items()),
        *(_set_method(dt.datetime, n, function) for n, function in _date_methods(find).items()),
        _set_method(dt.date, "today", _today_method(find)),
    ]
    clock = find()
    if clock is None or clock.seed:  # a process without a seed does not wait for `random`
        undo += _replace_random(find)

    def undo_all() -> None:
        while undo:
            undo.pop()()

    return undo_all


def _time_functions(find: FindClock) -> dict[str, Callable[..., Any]]:
    real: dict[str, Callable[..., Any]] = {name: getattr(time, name) for name in REPLACED_TIMES}

    def now() -> float:
        return real["time"]() if (clock := find()) is None else clock.now()

    def now_ns() -> int:
        return real["time_ns"]() if (clock := find()) is None else int(clock.now() * 1e9)

    def gmtime(secs: float | None = None, /) -> Any:
        return real["gmtime"](now() if secs is None else secs)

    def localtime(secs: float | None = None, /) -> Any:
        clock = find()
        if secs is not None or clock is None:
            return real["localtime"](secs)
        if clock.utc_offset is None:
            return real["localtime"](clock.now())
        return real["gmtime"](clock.now() + clock.utc_offset)

    def ctime(secs: float | None = None, /) -> str:
        return real["ctime"](secs) if secs is not None else time.asctime(localtime())

    def strftime(format: str, t: Any = None, /) -> str:  # noqa: A002 - the parameter of the original
        return real["strftime"](format, localtime() if t is None else t)

    return dict(zip(REPLACED_TIMES, (now, now_ns, gmtime, localtime, ctime, strftime), strict=True))


def _date_methods(find: FindClock) -> dict[str, Any]:
    real = {name: vars(dt.datetime)[name] for name in ("now", "utcnow")}

    def now(cls: type[dt.datetime], tz: Any = None) -> dt.datetime:
        if (clock := find()) is None:
            return real["now"].__get__(None, cls)(tz)
        if tz is not None or clock.utc_offset is None:
            return cls.fromtimestamp(clock.now(), tz)
        return cls.fromtimestamp(clock.now() + clock.utc_offset, dt.UTC).replace(tzinfo=None)

    def utcnow(cls: type[dt.datetime]) -> dt.datetime:
        if (clock := find()) is None:
            return real["utcnow"].__get__(None, cls)()
        return cls.fromtimestamp(clock.now(), dt.UTC).replace(tzinfo=None)

    return {"now": classmethod(now), "utcnow": classmethod(utcnow)}


def _today_method(find: FindClock) -> Any:
    real = vars(dt.date)["today"]

    def today(cls: Any) -> Any:
        if find() is None:
            return real.__get__(None, cls)()
        if issubclass(cls, dt.datetime):
            return cls.now()
        now = dt.datetime.now()  # noqa: DTZ005 - the local time
        return cls(now.year, now.month, now.day)

    return classmethod(today)


def _replace_random(find: FindClock) -> list[Callable[[], None]]:
    import random

    real_urandom, real_seed = os.urandom, random.Random.seed
    shared: Any = vars(random)["_inst"]

    def urandom(size: int, /) -> bytes:
        return real_urandom(size) if (clock := find()) is None else clock.stream().randbytes(size)

    def seed(self: Random, a: Any = None, version: int = 2) -> None:
        if a is None and (clock := find()) is not None:
            a = clock.stream().getrandbits(64)
        real_seed(self, a, version)

    def stream() -> Random | None:
        return None if (clock := find()) is None or clock.own_seed else clock.stream()

    # The functions of the module, such as `choice`, are methods of one object.
    class RunRandom(random.Random):
        def random(self) -> float:
            return super().random() if (values := stream()) is None else values.random()

        def getrandbits(self, k: int, /) -> int:
            return super().getrandbits(k) if (values := stream()) is None else values.getrandbits(k)

        def seed(self, a: Any = None, version: int = 2) -> None:
            if (clock := find()) is not None:
                clock.own_seed = a is not None
            real_seed(self, a, version)

        def getstate(self) -> Any:
            return super().getstate() if (values := stream()) is None else values.getstate()

        def setstate(self, state: Any) -> None:
            super().setstate(state) if (values := stream()) is None else values.setstate(state)

    shared.__class__ = RunRandom
    return [
        _set(os, "urandom", urandom),  # of uuid4
        _set(random, "_urandom", urandom),  # of secrets
        *(_set(random, name, getattr(shared, name)) for name in REPLACED_RANDOM),
        _set(random.Random, "seed", seed),
        partial(setattr, shared, "__class__", random.Random),
    ]


def _set(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute; return a function that restores it, unless another has set it since."""
    attributes = _attributes(owner)
    original = attributes[name]
    setattr(owner, name, value)

    def restore() -> None:
        if attributes[name] is value:
            setattr(owner, name, original)

    return restore


def _set_method(kind: type, name: str, method: Any) -> Callable[[], None]:
    """Set a method of a class that is written in C: modules have it by its name, too."""
    import ctypes

    methods: Any = gc.get_referents(vars(kind))[0]
    original = methods[name]

    def put(value: Any) -> None:
        methods[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

    put(method)

    def restore() -> None:
        if methods[name] is method:
            put(original)

    return restore


def replace_imported(modules: list[Any], functions: list[tuple[Any, Any]]) -> Callable[[], None]:
    """Replace functions where modules have imported them by name; return what undoes it."""
    replaced = {id(function): other for function, other in functions}
    undo = [
        _set(module, name, replaced[id(value)])
        for module in modules
        for name, value in list(_attributes(module).items())
        if id(value) in replaced
    ]

    def undo_all() -> None:
        while undo:
            undo.pop()()

    return undo_all


def _attributes(owner: object) -> Mapping[str, Any]:
    return owner.__dict__


if __name__ == SITECUSTOMIZE:  # Python starts, and this is the copy of the file
    here = os.path.dirname(__file__)  # noqa: PTH120 - without pathlib, as above
    clock = RunClock.of_process(os.environ[FROZEN_VARIABLE], here)
    undo = replace_clock(lambda: clock)
    # then import the `sitecustomize` that this one hides, if there is one
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop(SITECUSTOMIZE)
    try:
        __import__(SITECUSTOMIZE)
    except ImportError:
        sys.modules[SITECUSTOMIZE] = ours
