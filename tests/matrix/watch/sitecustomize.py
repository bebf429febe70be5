"""Log connections that leave this machine: every Python process of a row runs this at its start."""

import os
import sys
from ipaddress import ip_address
from typing import Any

LOG = os.environ.get("OFFBOOK_CONNECTIONS", "")


def is_local(host: object) -> bool:
    text = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    try:
        # A socket that is bound to all interfaces receives from here only.
        return (
            text == "localhost" or ip_address(text).is_loopback or ip_address(text).is_unspecified
        )
    except ValueError:  # the name of another host
        return False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    match event, arguments:
        case "socket.getaddrinfo", (host, port, *_):
            pass
        case (("socket.connect" | "socket.sendto"), (_, (host, port, *_))):
            pass
        case _:
            return
    if not is_local(host):
        with open(LOG, "a", encoding="utf-8") as log:  # noqa: PTH123 - pathlib is imported later
            log.write(f"{event} {host}:{port} in {' '.join(sys.orig_argv)}\n")


if LOG:
    sys.addaudithook(watch)
