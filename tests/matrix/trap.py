"""Run a command where every packet to another machine is caught: `python -m tests.matrix.trap …`.

The command has a network namespace of its own, in which every address is this machine. Each name is
resolved, so that a client goes on to its connection, and a listener for packets sees all that go to
another address than loopback. They are printed at the end, and the exit code is 1: nothing may be
sent, by any client and in any way.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from select import select
from typing import NoReturn

from offbook.subjects.process_tree import enter_namespace

ALL_PACKETS, OUTGOING = 3, 4  # of linux/if_ether.h and linux/if_packet.h
ATTACH_FILTER = 26
REPORT = "trap: "  # before each line of the report
TCP, UDP, SYN, ACK, DNS = 6, 17, 0x02, 0x10, 53
PINGS = {1: 8, 58: 128}  # the types of a request in ICMP, for each version
ADDRESSES = int(ip_address("198.18.0.0"))  # a network for tests of networks: no host has them
# A program for the kernel: packets to 127.0.0.0/8 are left out, unless they are for port 53.
FILTER = (
    (0x30, 0, 0, 0),  # the first byte of the packet
    (0x74, 0, 0, 4),  # its upper half, the version,
    (0x15, 0, 6, 4),  # is 4, or the packet is kept
    (0x30, 0, 0, 16),  # the first byte of the destination
    (0x15, 0, 4, 127),  # is 127, or the packet is kept
    (0xB1, 0, 0, 0),  # the length of the head
    (0x48, 0, 0, 2),  # the port of the destination
    (0x15, 1, 0, DNS),  # is 53: the packet is kept
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0x40000),
)


@dataclass
class Trap:
    """What was caught: the names that were looked up, and the connections and datagrams."""

    caught: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)  # by address

    def resolve(self, query: bytes) -> bytes:
        """Return the answer to a query: an address of its own for each name."""
        end = query.index(b"\0", 12)
        question, name = query[12 : end + 5], _read_name(query)
        if question[-4:] != b"\0\1\0\1":  # an address of IPv6, or another record
            return query[:2] + b"\x81\x80\0\1\0\0\0\0\0\0" + question
        known = {name: address for address, name in self.names.items()}
        address = known.get(name) or str(ip_address(ADDRESSES + 1 + len(known)))
        self.names[address] = name
        record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + ip_address(address).packed
        return query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + question + record

    def note(self, packet: bytes) -> None:
        """Count a packet that goes to another machine, or asks for a name."""
        version = packet[0] >> 4
        if version == 4:
            kind, data = packet[9], packet[4 * (packet[0] & 0xF) :]
            host = str(ip_address(packet[16:20]))
        elif version == 6:
            kind, data = packet[6], packet[40:]
            host = str(ip_address(packet[24:40]))
        else:
            return
        port = int.from_bytes(data[2:4], "big") if kind in {TCP, UDP} else 0
        if kind == UDP and data[:2] == DNS.to_bytes(2, "big"):
            return  # our answer
        if kind == UDP and port == DNS:
            self.caught[f"a query for {_read_name(data[8:])}"] += 1
        elif _is_elsewhere(host) and _is_request(kind, data):
            protocol = {TCP: "tcp", UDP: "udp"}.get(kind, f"protocol {kind}")
            self.caught[f"{protocol} to {self.names.get(host, host)} port {port}"] += 1


def _is_elsewhere(host: str) -> bool:
    address = ip_address(host)
    return not (address.is_loopback or address.is_multicast or address.is_link_local)


def _is_request(kind: int, data: bytes) -> bool:
    """Return whether a packet is a request: every address is this machine, which also answers."""
    if kind == TCP:
        return data[13] & (SYN | ACK) == SYN
    return kind not in PINGS or data[0] == PINGS[kind]


def _read_name(query: bytes) -> str:
    labels, position = list[str](), 12
    while position < len(query) and (size := query[position]):
        labels.append(query[position + 1 : position + 1 + size].decode("latin-1"))
        position += 1 + size
    return ".".join(labels)


def catch(command: Sequence[str], trap: Trap) -> int:
    """Run a command in the trap, and return its exit code."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        _enter_and_run(command, theirs)
    theirs.close()
    with ours:
        names = _receive_socket(ours)
        packets = _receive_socket(ours)
    if names is None or packets is None:
        os.waitpid(child, 0)
        raise PermissionError("cannot make a network namespace: no user namespaces here")
    with names, packets:
        packets.setblocking(False)
        while not (status := os.waitpid(child, os.WNOHANG))[0]:
            ready, _, _ = select([names, packets], [], [], 0.05)
            if packets in ready:
                _read_packets(packets, trap)
            if names in ready:
                query, sender = names.recvfrom(4096)
                names.sendto(trap.resolve(query), sender)
        _read_packets(packets, trap)
    return os.waitstatus_to_exitcode(status[1])


def _enter_and_run(command: Sequence[str], way: socket.socket) -> NoReturn:
    try:
        enter_namespace(os.dup(way.fileno()))
        # All addresses of IPv6 too, where the kernel has it.
        ip = shutil.which("ip")
        if ip is not None:
            route = [ip, "-6", "route", "add", "local", "::/0", "dev", "lo"]
            subprocess.run(route, stderr=subprocess.DEVNULL, check=False)
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PACKETS))
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in FILTER))
        pointer = struct.pack("HL", len(FILTER), ctypes.addressof(program))
        packets.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, pointer)
        socket.send_fds(way, [b"."], [packets.fileno()])
        packets.close()
        way.close()
        os.execvp(command[0], [*command])  # noqa: S606 - the command of the caller
    except OSError as error:
        print(f"trap: {error}", file=sys.stderr)
    finally:
        os._exit(127)


def _receive_socket(way: socket.socket) -> socket.socket | None:
    _, numbers, _, _ = socket.recv_fds(way, 1, 1)
    return socket.socket(fileno=numbers[0]) if numbers else None


def _read_packets(packets: socket.socket, trap: Trap) -> None:
    while True:
        try:
            packet, (_, _, kind, *_) = packets.recvfrom(65536)
        except BlockingIOError:
            return
        if kind == OUTGOING and packet:
            trap.note(packet)


def main(command: Sequence[str]) -> int:
    """Run a command; print what was caught, and return 1 if it was anything."""
    trap = Trap()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the command's
    code = catch(command, trap)
    print(f"{REPORT}{len(trap.caught)} destinations were tried beside the proxy", flush=True)
    for line, times in sorted(trap.caught.items()):
        print(f"{REPORT}{line} ({times})")
    return code or bool(trap.caught)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
