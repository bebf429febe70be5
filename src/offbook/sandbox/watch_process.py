"""Runs one command, and reports the files it changes outside of the sandbox and its connections.

    python -I -S watch_process.py REPORTS SANDBOX NETWORK COMMAND…

REPORTS is a folder, which gets a JSON file with `written`, `connected` and `problem`. SANDBOX is
the folder that the command may change. NETWORK is `sealed` or `open`.

On Linux the command runs in its own mount namespace. Each folder of `/` is an overlay there: the
command sees the files of this machine, and what it changes is in the upper layer, which is listed
and dropped. A sealed command also has its own network, in which every address leads to loopback;
each first packet is read there, and not answered. Where namespaces are not permitted the
command runs without them, and the report says why.
"""

# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH109, PTH115, PTH118, PTH120, PTH123, PTH211 - as
# process_tree.py, each command waits for the imports of this file
from __future__ import annotations

import json
import os
import select
import socket
import stat
import sys
from ctypes import CDLL, get_errno

# With `-I` the folder of the package is not searched; the module imports as little as this one.
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
from offbook.subjects import process_tree

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
# They have no files that an overlay could hold, or other file systems inside of them.
NOT_WATCHED = {"dev", "proc", "run", "sys"}
LISTED = 50
SEALED = "sealed"
IPV4, TCP, UDP, DNS_PORT = 0x0800, 6, 17, 53
SYN, ACK = 0x02, 0x10


def main(reports: str, sandbox: str, network: str, command: list[str]) -> None:
    """Run the command in namespaces, or without them; exit as it does."""
    ready, problems = os.pipe()
    watcher = os.fork()
    if not watcher:
        os.close(ready)
        watch(reports, sandbox, network, command, problems)
    os.close(problems)
    problem = os.read(ready, 1000).decode()
    os.close(ready)
    if problem:
        os.waitpid(watcher, 0)
        write_report(reports, {"problem": problem})
        os.execvp(command[0], command)  # noqa: S606 - the command of the caller
    exit_like(wait_for(watcher))


def watch(reports: str, sandbox: str, network: str, command: list[str], problems: int) -> None:
    """Enter the namespaces, run the command there, and write the report."""
    try:
        cwd = os.getcwd()
        enter_namespaces(network)
        packets = open_packets() if network == SEALED else None
        root, uppers = mount_overlays(sandbox)
    except (OSError, AttributeError) as error:  # AttributeError: not Linux
        os.write(problems, (str(error) or type(error).__name__).encode())
        os._exit(1)
    os.close(problems)
    child = os.fork()
    if not child:
        try:
            os.chroot(root)
            os.chdir(cwd)
            os.execvp(command[0], command)  # noqa: S606 - as above
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)
    connected = read_packets(packets, child) if packets is not None else []
    code = wait_for(child)
    write_report(reports, {"written": list_changes(uppers), "connected": connected})
    exit_like(code)


# --- namespaces


def enter_namespaces(network: str) -> None:
    """Leave the mounts of this machine, and its network if the command is sealed."""
    process_tree.unshare(
        process_tree.CLONE_NEWNS | (process_tree.CLONE_NEWNET if network == SEALED else 0)
    )
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system or a folder, or raise an OSError that names it."""
    libc = CDLL(None, use_errno=True)
    words = [text.encode() for text in (source, target, kind)]
    if libc.mount(*words, flags, options.encode()):
        raise OSError(get_errno(), f"cannot mount {kind or 'a folder'} at {target}")


def mount_overlays(sandbox: str) -> tuple[str, dict[str, str]]:
    """Return a root that looks like this one, and the upper layer of each of its folders."""
    base = os.path.join(sandbox, "layers")
    os.makedirs(base, exist_ok=True)
    mount("tmpfs", base, "tmpfs")
    root = os.path.join(base, "root")
    os.mkdir(root)
    with open("/proc/self/mountinfo") as file:
        mounted = [line.split()[4] for line in file]
    uppers = {"/": root}
    for entry in os.scandir("/"):
        target = os.path.join(root, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            # The layers themselves are a mount below one of the folders.
            inner = [point for point in mounted if point.startswith(f"{entry.path}/")]
            if entry.name in NOT_WATCHED or [point for point in inner if point != base]:
                mount(entry.path, target, "", MS_BIND | MS_REC)
                continue
            upper, work = (os.path.join(base, kind, entry.name) for kind in ("upper", "work"))
            os.makedirs(upper)
            os.makedirs(work)
            # The upper folder decides who may write: this user owns it, not the real one.
            mode = stat.S_IMODE(entry.stat().st_mode)
            os.chmod(upper, mode if os.access(entry.path, os.W_OK) else mode & ~0o222)
            layers = f"lowerdir={entry.path},upperdir={upper},workdir={work},userxattr"
            mount("overlay", target, "overlay", 0, layers)
            uppers[entry.path] = upper
    mount(sandbox, root + sandbox, "", MS_BIND)
    if not os.access("/", os.W_OK):
        os.chmod(root, 0o555)  # noqa: S103 - as it is here
    return root, uppers


def list_changes(uppers: dict[str, str]) -> list[str]:
    """Return the files and the new folders of the upper layers, as paths of this machine."""
    found: list[str] = []
    for folder, upper in uppers.items():
        for place, folders, files in os.walk(upper):
            real = os.path.normpath(os.path.join(folder, os.path.relpath(place, upper)))
            if folder == "/":  # new files only: its folders have layers of their own
                folders.clear()
                files[:] = [name for name in files if not os.path.lexists(f"/{name}")]
            if "__pycache__" in folders:
                folders.remove("__pycache__")
            if not files and not folders and not os.path.lexists(real):
                found.append(f"{real}/")
            for name in files:
                mode = os.lstat(os.path.join(place, name)).st_mode
                removed = " (removed)" if stat.S_ISCHR(mode) else ""
                found.append(f"{os.path.join(real, name)}{removed}")
    return sorted(found)[:LISTED]


# --- the network


def open_packets() -> socket.socket:
    """Return a socket that reads the packets of a network in which all addresses are local."""
    process_tree.configure_loopback()
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(IPV4))
    packets.setblocking(False)
    return packets


def read_packets(packets: socket.socket, child: int) -> list[str]:
    """Return the destinations of the packets until the command has ended."""
    found: list[str] = []
    running = os.pidfd_open(child)
    ended = False
    while not ended:
        ended = running in select.select([packets, running], [], [])[0]
        try:
            while True:
                destination = read_destination(packets.recv(65535))
                if destination and destination not in found:
                    found.append(destination)
        except BlockingIOError:
            continue
    # A name is looked up with the suffixes of the resolver as well.
    return [name for name in found if not any(name.startswith(f"{other}.") for other in found)]


def read_destination(packet: bytes) -> str:
    """Return the host that a first packet is for, or the name that it looks up."""
    start = (packet[0] & 15) * 4
    protocol, address = packet[9], ".".join(map(str, packet[16:20]))
    port = int.from_bytes(packet[start + 2 : start + 4], "big")
    if protocol == UDP and port == DNS_PORT:
        return read_name(packet[start + 8 :])
    is_first = protocol == UDP or (protocol == TCP and packet[start + 13] & (SYN | ACK) == SYN)
    return f"{address}:{port}" if is_first and not address.startswith("127.") else ""


def read_name(message: bytes) -> str:
    """Return the name in a DNS query."""
    labels: list[str] = []
    place = 12
    while place < len(message) and (length := message[place]):
        labels.append(message[place + 1 : place + 1 + length].decode("ascii", "replace"))
        place += 1 + length
    return ".".join(labels)


# --- the end


def write_report(reports: str, report: dict[str, object]) -> None:
    """Write a report; one file for each command."""
    with open(os.path.join(reports, f"{os.getpid()}.json"), "w") as file:
        json.dump(report, file)


def wait_for(child: int) -> int:
    """Return the exit code of a child, or the negative number of its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def exit_like(code: int) -> None:
    """Exit with a code, or by the signal that it means."""
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
