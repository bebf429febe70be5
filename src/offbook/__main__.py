"""The entry point: `offbook`, and `python -m offbook`."""

import gc
import io
import os
import sys

from offbook.capability import WINDOWS
from offbook.version import VERSION

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    from typing import Any, TextIO

# They run agents in this process: what such an agent has started ends with it.
RUNNERS = {
    *("bench", "checkup", "determinism", "eval", "explore", "golden", "pattern", "scenario"),
    "workspace",
}
HANG_TIME = 5.0  # after a signal, until a command that hangs is killed
INTERRUPTED = 130  # the exit code after Ctrl-C, as of a shell
SI_KERNEL = 0x80  # sent by the terminal


def main() -> None:
    """Run the command line; `--version` and `--help` alone need no other package."""
    open_streams()
    try:
        run()
    except KeyboardInterrupt:  # while it was imported
        sys.stderr.write("offbook: interrupted\n")
        sys.exit(INTERRUPTED)


def run() -> None:
    """Run the command of the arguments, and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        print_text(f"offbook {VERSION}")
        return
    if sys.platform == "win32":
        sys.exit(f"offbook: {WINDOWS}")
    if sys.argv[1:] in (["--help"], ["-h"]):
        from offbook.surfaces.commands import render_help

        print_text(render_help())
        return
    if sys.argv[1:2] and sys.argv[1] in RUNNERS and "--help" not in sys.argv:
        guard()
    gc.set_threshold(50_000, 20, 20)  # imports make many objects and no garbage
    from offbook.surfaces.cli import main as run_command

    # What a command has imported stays, and no collection visits it: the one at exit takes 40 ms.
    run_command(on_load=gc.freeze)


class OutputFile(io.FileIO):
    """A standard stream. If it cannot be written, the rest of the output goes to /dev/null.

    A reader that closes its pipe (`offbook lint | head -1`) has seen enough: the command goes on,
    and its exit code is its own. Any other error is raised once, and not again at the exit.
    """

    def write(self, data: "Any", /) -> "int | None":
        """Write data; nothing is no attempt, and click ignores its error."""
        try:
            return super().write(data) if data else 0
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if not isinstance(error, BrokenPipeError):
                raise
            return super().write(data)


def open_streams() -> None:
    """Make the standard streams usable: open closed ones as /dev/null, and expect a closed pipe."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed, as by `>&-`; the lowest free number is this one
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the whole process
    sys.stdout = _open_output(1, sys.stdout)
    sys.stderr = _open_output(2, sys.stderr)


def _open_output(number: int, stream: "TextIO | None") -> "TextIO":
    if stream is None:
        return open(number, "w", closefd=False)
    if not isinstance(stream, io.TextIOWrapper):  # replaced, as by a test
        return stream
    file = OutputFile(number, "w", closefd=False)
    return io.TextIOWrapper(
        # As Python makes it: without a buffer below PYTHONUNBUFFERED.
        file if stream.write_through else io.BufferedWriter(file),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def print_text(text: str) -> None:
    """Print a text, or exit with the reason why it cannot be written."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        sys.exit(f"offbook: {error.strerror}")


def guard() -> None:
    """Continue in a child. This process waits for it, then ends what is left below it.

    Signals for this process are passed on, and a child that hangs is killed. If this process is
    killed, the child ends all its descendants and itself. Call it before any thread starts.
    """
    if sys.platform != "linux":  # pragma: no cover - macOS
        return
    import signal
    from ctypes import CDLL
    from time import monotonic

    from offbook.subjects.process_tree import (
        PR_SET_CHILD_SUBREAPER,
        PR_SET_PDEATHSIG,
        SIGKILL,
        kill_descendants,
        reap,
        send,
    )

    def end_all() -> None:
        kill_descendants()
        os.kill(os.getpid(), SIGKILL)

    prctl = CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    passed_on = {
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if signal.getsignal(number) is not signal.SIG_IGN  # below nohup
    }
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*passed_on, signal.SIGCHLD})
    child = os.fork()
    if not child:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGPWR, lambda _number, _frame: end_all())
        prctl(PR_SET_PDEATHSIG, signal.SIGPWR, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if os.getppid() != parent:
            end_all()
        return
    reason, give_up = 0, 0.0
    while child not in (ended := reap()):
        left = max(0.0, give_up - monotonic()) if reason else 60.0
        received = signal.sigtimedwait({*passed_on, signal.SIGCHLD}, left)
        if received is None:
            if reason:  # the agent hangs
                send(os.kill, child, SIGKILL)
        elif received.si_signo in passed_on:
            if not reason:
                reason, give_up = received.si_signo, monotonic() + HANG_TIME
            if received.si_code != SI_KERNEL:  # one of the terminal has reached the child, too
                send(os.kill, child, received.si_signo)
    kill_descendants()
    code = ended[child]
    if reason and code != 128 + reason:  # a library may end the child in its own way, as Ray does
        code = -reason
    if code < 0:  # end in the same way, for a shell
        if code != -SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
