"""The workers of a conformance run: as many cases at a time as there are jobs."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from offbook.conformance.case_worker import CaseExit, receive_message, send_message

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from offbook.conformance.cases import ConformanceCase

WORKER_END = 10.0  # seconds for a worker to kill its case


class Worker(NamedTuple):
    """A process that runs cases, and the socket to it."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    def close(self) -> None:
        """End the worker, and with it the case that it runs."""
        self.channel.close()
        self.process.wait(WORKER_END)


def start_worker() -> Worker:
    """Start a worker in its own session, so that Ctrl-C does not interrupt it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own module
            # -P: a file in the folder of the user must not replace a module.
            [sys.executable, "-P", "-m", "offbook.conformance.case_worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Worker(process, ours)


def run_commands(
    cases: Iterable[ConformanceCase], jobs: int, timeout: float, max_output: int
) -> Generator[tuple[ConformanceCase, CaseExit]]:
    """Run the commands of cases; yield each case when it ends."""
    waiting = iter(cases)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:

        def start_next(worker: Worker | None) -> None:
            case = next(waiting, None)
            if case is None:
                return
            if worker is None:
                worker = start_worker()
                stack.callback(worker.close)
            send_message(worker.channel, (list(case.command), timeout, max_output))
            selector.register(worker.channel, selectors.EVENT_READ, (worker, case))

        for _ in range(jobs):
            start_next(None)
        while selector.get_map():
            for key, _ in selector.select():
                worker, case = key.data
                selector.unregister(key.fileobj)
                message = receive_message(worker.channel)
                # The worker has the next case before the result of this one is looked at.
                start_next(worker if message is not None else None)
                if message is None:
                    yield (
                        case,
                        CaseExit(-1, b"", b"", 0.0, error="the process of the case was killed"),
                    )
                else:
                    yield case, CaseExit(*message)
