"""Runs one command, and ends its whole process tree. `process.py` starts it for each command.

`guard` in `__main__.py` does the same for a command of Offbook: what an agent in it has started
ends with it. `watch` does it for any other process, such as pytest, after its end.

It is a separate process because it has to outlive the process that started it: when that one
ends, also by SIGKILL, the tree is killed. On Linux it is the subreaper of the tree: a descendant
whose parent ends becomes its child. So a daemon is found, whatever it did to its environment, its
group or its session. Elsewhere only the process group of the command is killed.

    python -I -S process_tree.py PARENT CHANNEL LC_CTYPE SEAL COMMAND…

PARENT is the id of the process that started it. CHANNEL is a socket, on which it reports a line
each: `start PID` or `error ERRNO`, `exit CODE`, and at the end `leaked PID…`, the descendants that
had left the process group. Each byte that it receives is a signal for the group. The end of the
socket kills the tree.

SEAL is empty, or a socket and ports, as in `7,4111,443`. Then the command runs in a new
network namespace, which has nothing but loopback. The ports are opened in it, with port 53 for
names, and sent over the socket to a process that answers there.

    python -I -S process_tree.py watch PARENT MARK

waits for the end of PARENT, and kills all processes with the mark: see `AgentProcesses`.
"""

# ruff: noqa: PTH123, PTH208, SIM105 - each command waits for the imports of this file
from __future__ import annotations

import os
import select
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket as sockets
    from collections.abc import Callable
    from socket import SHUT_RD, socket
else:
    import _signal as signal  # `signal` itself takes 8 ms, for its enums
    import _socket as sockets
    from _socket import SHUT_RD, socket

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIGKILL = 9
NO_CHILD = -1
PARENT_CHECK = 0.1  # seconds between two looks at the parent
KILL_PAUSE = 0.01
KILL_TIME = 5.0  # a process in uninterruptible sleep may take seconds


CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000


def main(parent: int, channel: int, lc_ctype: str, seal: str, command: list[str]) -> None:
    """Run the command, and return when nothing of its tree is left."""
    os.set_inheritable(channel, False)
    if not lc_ctype:  # Python sets it in the C locale, and the command would inherit it
        os.environ.pop("LC_CTYPE", None)
    if sys.platform == "linux":
        from ctypes import CDLL

        prctl = CDLL(None).prctl
        subreaper = prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    else:  # pragma: no cover - macOS
        prctl, subreaper = None, False
    leader = start(command, channel, prctl, seal)

    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # it only wakes us
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)

    exited = ending = False
    leaked: set[int] = set()
    give_up = 0.0
    while not ending or monotonic() < give_up:
        ended = reap()
        if leader in ended:
            exited = True
            report(channel, f"exit {ended[leader]}")
        # Without a subreaper, processes that are not our children may still write output.
        if NO_CHILD in ended and (subreaper or ending):
            break
        if ending:
            send(os.killpg, leader, SIGKILL)
            for pid, group in descendants() if subreaper else ():
                if group != leader:
                    leaked.add(pid)
                send(os.kill, pid, SIGKILL)
            select.select([wake], [], [], KILL_PAUSE)
            continue
        ready, _, _ = select.select([channel, wake], [], [], PARENT_CHECK)
        if wake in ready:
            os.read(wake, 4096)
        if channel in ready:
            numbers = receive(channel)
            ending = not numbers
            for number in numbers if not exited else b"":
                send(os.killpg, leader, number)
        ending = ending or os.getppid() != parent
        give_up = monotonic() + KILL_TIME
    if not subreaper:  # pragma: no cover - macOS
        send(os.killpg, leader, SIGKILL)
    refuse_signals(channel)
    report(channel, " ".join(["leaked", *map(str, sorted(leaked))]))


def kill_descendants() -> None:
    """Kill the descendants of this process, until none is left."""
    give_up = monotonic() + KILL_TIME
    while NO_CHILD not in reap() and monotonic() < give_up:
        for pid, _ in descendants():
            send(os.kill, pid, SIGKILL)
        select.select([], [], [], KILL_PAUSE)


def watch(parent: int, mark: str) -> None:
    """Wait for the end of a process, then kill all processes with its mark."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        select.select([os.pidfd_open(parent)], [], [])
    except ProcessLookupError:  # it has ended
        pass
    except OSError:  # Linux before 5.3
        while os.path.exists(f"/proc/{parent}"):  # noqa: PTH110 - as above
            select.select([], [], [], PARENT_CHECK)
    killed = {os.getpid()}
    # A process may have started another one after it was found, and before it was killed.
    while found := find_marked(mark) - killed:
        for pid in found:
            send(os.kill, pid, SIGKILL)
        killed |= found


def find_marked(mark: str) -> set[int]:
    """Return the processes with this limit of file locks."""
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/limits", "rb") as file:
                    limit = file.read().partition(b"Max file locks")[2].split(None, 1)[:1]
            except OSError:
                continue
            if limit == [mark.encode()]:
                found.add(int(name))
    return found


def reap() -> dict[int, int]:
    """Return the children that have ended, each with its exit code; NO_CHILD if none is left."""
    ended: dict[int, int] = {}
    while NO_CHILD not in ended:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pid, status = NO_CHILD, 0
        if not pid:
            break
        ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def start(command: list[str], channel: int, prctl: Callable[..., int] | None, seal: str) -> int:
    """Start the command in its own session and return its id, or report why it did not start."""
    failure, failed = os.pipe()  # closed by a successful exec
    leader = os.fork()
    if not leader:
        try:
            os.setsid()
            if seal:
                try:
                    enter_namespace(*map(int, seal.split(",")))
                except OSError as error:
                    os.write(failed, f"seal {error.errno}".encode())
                    os._exit(127)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
                signal.signal(number, signal.SIG_DFL)
            if prctl is not None:  # in case this process is killed
                prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
            os.execvp(command[0], command)  # noqa: S606 - the user's command
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(failed)
    error = os.read(failure, 16).decode()
    report(channel, f"error {error}" if error else f"start {leader}")
    if error:
        sys.exit()
    # The pipes of the command end when the command and its children have closed them.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    # We end with our parent. A signal for everyone must not end us before.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    return leader


def unshare(kinds: int) -> None:
    """Enter new namespaces of these kinds."""
    from ctypes import CDLL, get_errno

    libc = CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    # Root keeps its users, where it may; others need a namespace in which they have its rights.
    if user or libc.unshare(kinds):
        if libc.unshare(CLONE_NEWUSER | kinds):
            raise OSError(get_errno(), "namespaces are not permitted")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def enter_namespace(channel: int, *ports: int) -> None:
    """Leave the network of this machine; send the sockets of the ports in the new one."""
    unshare(CLONE_NEWNET)
    configure_loopback()
    opened = [socket(sockets.AF_INET, sockets.SOCK_DGRAM)]
    opened[0].bind(("0.0.0.0", 53))  # noqa: S104 - of a network without other machines
    for port in ports:
        listener = socket(sockets.AF_INET, sockets.SOCK_STREAM)
        listener.bind(("0.0.0.0", port))  # noqa: S104 - as above
        listener.listen(128)
        opened.append(listener)
    numbers = b"".join(end.fileno().to_bytes(4, sys.byteorder) for end in opened)
    way = socket(fileno=channel)
    way.sendmsg([b"."], [(sockets.SOL_SOCKET, sockets.SCM_RIGHTS, numbers)])


def configure_loopback() -> None:
    """Set up the loopback interface, with all addresses: each host is this one."""

    def number(value: int, size: int = 4) -> bytes:
        return value.to_bytes(size, sys.byteorder)

    def send(kind: int, flags: int, body: bytes) -> None:
        head = number(16 + len(body)) + number(kind, 2) + number(flags, 2) + number(1) + number(0)
        link.send(head + body)
        answer = link.recv(4096)
        if code := int.from_bytes(answer[16:20], sys.byteorder, signed=True):
            raise OSError(-code, "netlink")

    link = socket(sockets.AF_NETLINK, sockets.SOCK_RAW, sockets.NETLINK_ROUTE)
    link.bind((0, 0))
    request, create = 0x1 | 0x4, 0x400 | 0x200  # with an answer; a new one, and no second
    up, loopback = 1, 1
    # RTM_NEWLINK: interface 1 is up
    send(16, request, number(0) + number(loopback) + number(up) + number(up))
    # RTM_NEWROUTE: in the table of local addresses, for all of them, over interface 1
    family, length, table, boot, host, local = sockets.AF_INET, 0, 255, 3, 254, 2
    route = bytes([family, length, 0, 0, table, boot, host, local]) + number(0)
    send(24, request | create, route + number(8, 2) + number(4, 2) + number(loopback))
    link.close()


def descendants() -> list[tuple[int, int]]:
    """Return the descendants of this process, each with its process group."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # the name of the program, in brackets, may contain anything
                    parent, group = map(int, file.read().rpartition(b") ")[2].split()[1:3])
            except OSError:
                continue
            children.setdefault(parent, []).append((int(name), group))
    found = list(children.get(os.getpid(), ()))
    for pid, _ in found:
        found += children.get(pid, ())
    return found


def send(kill: Callable[[int, int], None], target: int, number: int) -> None:
    """Send a signal to a process or a group that may be gone."""
    try:
        kill(target, number)
    except (ProcessLookupError, PermissionError):
        pass


def receive(channel: int) -> bytes:
    """Return the signals to send, or nothing at the end of the socket."""
    try:
        return os.read(channel, 64)
    except OSError:  # the other end was closed before it had read all reports
        return b""


def refuse_signals(channel: int) -> None:
    """Read no more signals: one left unread would reset the socket, and our reports with it."""
    end = socket(fileno=channel)
    try:
        end.shutdown(SHUT_RD)
    except OSError:  # the other end is closed
        pass
    end.detach()
    while receive(channel):
        pass


def report(channel: int, line: str) -> None:
    """Write a line to the process that started us, if it still exists."""
    try:
        os.write(channel, f"{line}\n".encode())
    except OSError:  # its reader has ended
        pass


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(int(sys.argv[2]), sys.argv[3])
        sys.exit()
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])
