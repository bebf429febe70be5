"""The entry point: `offbook`, and `python -m offbook`."""

import gc
import os
import sys

from offbook.capability import WINDOWS
from offbook.version import VERSION

# They run agents in this process: what such an agent has started ends with it.
RUNNERS = {
    *("bench", "checkup", "determinism", "eval", "explore", "golden", "pattern", "scenario"),
    "workspace",
}
HANG_TIME = 5.0  # after a signal, until a command that hangs is killed
SI_KERNEL = 0x80  # sent by the terminal


def main() -> None:
    """Run the command line; `--version` and `--help` alone need no other package."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"offbook {VERSION}\n")
        return
    if sys.platform == "win32":
        sys.exit(f"offbook: {WINDOWS}")
    if sys.argv[1:] in (["--help"], ["-h"]):
        from offbook.surfaces.commands import render_help

        sys.stdout.write(f"{render_help()}\n")
        return
    if sys.argv[1:2] and sys.argv[1] in RUNNERS and "--help" not in sys.argv:
        guard()
    gc.set_threshold(50_000, 20, 20)  # imports make many objects and no garbage
    from offbook.surfaces.cli import main as run_command

    # What a command has imported stays, and no collection visits it: the one at exit takes 40 ms.
    run_command(on_load=gc.freeze)


def guard() -> None:
    """Continue in a child. This process waits for it, then ends what is left below it.

    Signals for this process are passed on, and a child that hangs is killed. If this process is
    killed, the child ends all of its own descendants and itself. Call it before any thread starts.
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
