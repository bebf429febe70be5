"""Python processes that are forked from one which has imported already what they need.

To start Python, pytest and Offbook takes half a second, to import an SDK or a framework up to
three. A fork takes none of it, and is a process of its own in every other respect: its streams,
folder, environment and exit code are those that a test gives it. A test of the start itself, of
its imports or of its signals starts `sys.executable` instead.

All workers of a run share two servers: one for processes that need pytest and Offbook only, and
one which imports SDKs and frameworks, too. To fork that one takes three times as long. They end
with the last of the workers.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import marshal
import os
import pkgutil
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from _pytest.pytester import Pytester, RunResult

ROOT = Path(__file__).resolve().parents[1]
LENGTH = struct.Struct("!Q")
SECONDS = 300
AVAILABLE = hasattr(os, "pidfd_open")  # only Linux tells the end of a process by a file


class Job(NamedTuple):
    """What to run: the arguments of Python, its folder and environment, what to import before."""

    args: list[str]
    cwd: str
    env: dict[str, str]
    imports: list[str]


def run_python(
    *args: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stderr: int = subprocess.PIPE,
    imports: Sequence[str] = (),
    forks: bool = False,
    timeout: float = SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGS` without an input, and return its exit code and output.

    The modules of `imports` are imported by a server, once for all processes. With `forks`, the
    modules that the process runs by `sys.executable -m` are forks as well.
    """
    words = [str(word) for word in args]
    variables = dict(os.environ if env is None else env)
    if forks:
        variables |= forked_python()
    if not AVAILABLE:
        return subprocess.run(
            [sys.executable, *words],
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=timeout,
            check=False,
        )
    job = Job(words, str(cwd or Path.cwd()), variables, [*imports])
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as none,
    ):
        errors = out if stderr == subprocess.STDOUT else err
        code = SERVERS[bool(imports)].start(
            job, [none.fileno(), out.fileno(), errors.fileno()], timeout
        )
        texts = [_read(file) for file in (out, err)]
    return subprocess.CompletedProcess(["python", *words], code, *texts)


def forked_command(*args: object, imports: Sequence[str] = ()) -> list[str]:
    """Return a command that runs `python ARGS` in a fork, and passes signals on to it."""
    words = [str(word) for word in args]
    if not AVAILABLE:
        return [sys.executable, *words]
    path = SERVERS[bool(imports)].open()
    program = str(Path(__file__).with_name("forked_command.py"))
    return [sys.executable, "-I", "-S", program, str(path), ",".join(imports), *words]


def run_pytest(pytester: Pytester, *args: str) -> RunResult:
    """Run pytest as `runpytest_subprocess` does, but it and its workers are forks."""
    before = os.environ.copy()
    os.environ.update(forked_python())
    try:
        return pytester.run(*forked_command("-m", "pytest"), *args)
    finally:
        os.environ.clear()
        os.environ.update(before)


PYTHON = "OFFBOOK_TESTS_PYTHON"  # the program that is sys.executable in a fork


def forked_python() -> dict[str, str]:
    """Return the variable by which a fork runs modules, and the workers of xdist, as forks."""
    if not AVAILABLE:
        return {}
    command = shlex.join(forked_command())
    path = SERVERS[False].open().with_suffix(".python")
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            case = f'case "$1" in -m | -u) exec {command} "$@" ;; esac'
            path.write_text(f'#!/bin/sh\n{case}\nexec {shlex.quote(sys.executable)} "$@"\n')
            path.chmod(0o755)
    return {PYTHON: str(path)}


class Connection:
    """The connection of this process to the server of the run, made when it is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None

    def open(self) -> Path:
        """Start the server if it does not run, and return its address.

        One that was started in a process under test has ended with it.
        """
        with self._lock:
            if self._channel is not None and _has_ended(self._channel):
                self._channel.close()
                self._channel = None
            if self._channel is None:
                self._channel = self._connect()
        return self._path

    def start(self, job: Job, streams: list[int], timeout: float) -> int:
        """Run a job with these streams, and return its exit code."""
        self.open()
        with self._lock:
            assert self._channel is not None
            self._channel.settimeout(timeout)
            _send(self._channel, tuple(job), streams)
            pid = _receive(self._channel)[0]
            try:
                return _receive(self._channel)[0]
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self._channel.settimeout(None)
                _receive(self._channel)
                raise subprocess.TimeoutExpired(job.args, timeout) from None

    def _connect(self) -> socket.socket:
        channel = socket.socket(socket.AF_UNIX)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(OSError):
                channel.connect(str(self._path))
                return channel
            self._path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self._path))
                listener.listen()
                command = [sys.executable, "-m", "tests.forked", str(listener.fileno())]
                self._server = subprocess.Popen(
                    command, cwd=ROOT, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL
                )
                channel.connect(str(self._path))
        return channel

    def close(self) -> None:
        """Leave the server; the one who started it waits for its end."""
        if self._channel is not None:
            self._channel.close()
        if self._server is not None:
            self._server.wait(SECONDS)
            for path in (self._path, *map(self._path.with_suffix, (".lock", ".python"))):
                path.unlink(missing_ok=True)


def _has_ended(channel: socket.socket) -> bool:
    """Return whether the other end of a connection is closed."""
    channel.setblocking(False)
    try:
        return not channel.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        channel.setblocking(True)


RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
# Whether it imports more than pytest and Offbook.
SERVERS = {
    more: Connection(Path(tempfile.gettempdir(), f"offbook-forked-{RUN[:16]}{'-more' * more}"))
    for more in (False, True)
}


def close_servers() -> None:
    for server in SERVERS.values():
        server.close()


def _read(file: Any) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").replace("\r\n", "\n")


def _send(channel: socket.socket, message: Any, streams: Sequence[int] = ()) -> None:
    data = marshal.dumps(message)
    socket.send_fds(channel, [LENGTH.pack(len(data))], streams)
    channel.sendall(data)


def _receive(channel: socket.socket) -> tuple[Any, list[int]]:
    """Return a message with its files; raise EOFError at the end of the connection."""
    head, streams, _, _ = socket.recv_fds(channel, LENGTH.size, 3)
    if len(head) < LENGTH.size:
        raise EOFError
    length, data = LENGTH.unpack(head)[0], b""
    while len(data) < length:
        data += channel.recv(length - len(data))
    return marshal.loads(data), streams  # noqa: S302 - of our own tests


# What Offbook imports when it is used.
USED_LATE = (
    *("click._textwrap", "cryptography.hazmat.backends.openssl.backend", "encodings.idna"),
    *("cryptography.hazmat.primitives.serialization.pkcs12", "resource", "rich.console"),
    *("ruamel.yaml", "statistics", "trustme", "uvloop", "yaml_rs"),
)


def import_offbook() -> None:
    """Import all modules of Offbook and what they import late."""
    packages = [import_module(name) for name in ("offbook", "pytest_offbook")]
    found = [pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in packages]
    names = [module.name for modules in found for module in modules]
    for name in [*names, *USED_LATE]:
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                import_module(name)


def start_pytest_faster() -> None:
    """Leave out two searches of pytest in this process: half of the time of a run with one test.

    For each name in PYTEST_PLUGINS, it reads the entry points of all packages, although the name is
    that of a module. In each module and plugin, it unwraps every function to find a fixture that
    another decorator hides.
    """
    from _pytest.fixtures import FixtureManager
    from pluggy import PluginManager

    load = PluginManager.load_setuptools_entrypoints

    def load_entry_points(self: PluginManager, group: str, name: str | None = None) -> int:
        return 0 if name is not None and "." in name else load(self, group, name)

    def ignore(self: FixtureManager, name: str, obj: object) -> None: ...

    PluginManager.load_setuptools_entrypoints = load_entry_points
    FixtureManager._check_for_wrapped_fixture = ignore  # type: ignore[method-assign] # pyright: ignore[reportPrivateUsage]


# --- the server

# A first run of pytest imports what nearly every process needs.
FIRST_TEST = """
from offbook import say, when

def test_it(offbook):
    offbook.session().run(when("Hi", [say("Hello.")]))
"""


def warm_up() -> None:
    import pytest

    start_pytest_faster()
    import_offbook()

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        test = Path(folder, "test_it.py")
        test.write_text(FIRST_TEST)
        flags = [
            "-c",
            os.devnull,
            "--rootdir",
            folder,
            "-pno:cacheprovider",
            "-pno:langsmith_plugin",
        ]
        pytest.main([str(test), *flags])
    for name in ("test_it", "__main__.test_it"):
        sys.modules.pop(name, None)


def keep_coverage() -> None:
    """Write what coverage has measured in this process, so that its forks do not."""
    if "coverage" in sys.modules and (measured := sys.modules["coverage"].Coverage.current()):
        measured.save()


def serve(listener: socket.socket) -> tuple[Job, list[int]]:
    """Start jobs until the last connection ends. Returns in the processes of the jobs only."""
    import gc
    import selectors

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, "listener")
    warm_up()
    keep_coverage()
    gc.collect()
    gc.freeze()
    connections = 0
    loaded = set[str]()
    running = dict[socket.socket, int]()
    while True:
        for key, _ in selector.select():
            if key.data == "listener":
                selector.register(listener.accept()[0], selectors.EVENT_READ, "connection")
                connections += 1
                continue
            if key.data != "connection":
                pid, channel = key.data
                del running[channel]
                selector.unregister(key.fileobj)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):  # the test has not waited
                    _send(channel, code)
                continue
            channel: Any = key.fileobj
            try:
                job, streams = _receive(channel)
            except (EOFError, ConnectionError):
                if channel in running:
                    os.kill(running[channel], signal.SIGKILL)
                selector.unregister(channel)
                channel.close()
                connections -= 1
                if connections == 0:
                    os._exit(0)
                continue
            for name in [name for name in job[3] if name not in loaded]:
                with contextlib.suppress(ImportError):
                    import_module(name)
                loaded.add(name)
                gc.freeze()
            pid = os.fork()
            if pid == 0:
                selector.close()
                signal.signal(signal.SIGINT, signal.default_int_handler)
                return Job(*job), streams
            for stream in streams:
                os.close(stream)
            running[channel] = pid
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, channel))
            _send(channel, pid)


def play(job: Job, streams: list[int]) -> None:
    """Be the process of a job."""
    import random
    import runpy
    import types

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    at_once = bool(job.env.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=at_once)  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue]
    os.chdir(job.cwd)
    os.environ.clear()
    os.environ.update(job.env)
    time.tzset()
    tempfile.tempdir = None
    random.seed()
    sys.executable = job.env.get(PYTHON, sys.executable)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    extra = [part for part in job.env.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.dont_write_bytecode = bool(job.env.get("PYTHONDONTWRITEBYTECODE"))
    for folder in extra:
        if Path(folder, "sitecustomize.py").exists():  # as at the start of Python
            runpy.run_path(str(Path(folder, "sitecustomize.py")), run_name="sitecustomize")
    kind, *rest = job.args
    if kind == "-u":  # a worker of xdist
        kind, *rest = rest
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[:1] = ["", *extra]
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)  # noqa: S102 - as `python -c`
    elif kind == "-m":
        sys.argv = rest
        sys.path[:1] = [job.cwd, *extra]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = job.args
        sys.path[:1] = [str(Path(kind).resolve().parent), *extra]
        runpy.run_path(kind, run_name="__main__")


@contextlib.contextmanager
def ended() -> Generator[None]:
    """End the process as Python does, but without taking the modules apart."""
    import atexit

    code: object = 1
    try:
        yield
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - as at the end of Python
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit((code or 0) & 255)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        mine, its_streams = serve(listening)
    with ended():
        play(mine, its_streams)
