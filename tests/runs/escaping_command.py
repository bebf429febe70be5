"""Ways out of a command, and a program that tries them: `python -m tests.runs.escaping_command`.

Each way has its own name and address of another machine, so that what is caught names the way. A
way is closed in a plain command, or `SEALED`: caught by the namespace only, and named on the page
on determinism by the words in this table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from offbook import Playbook, say, when
from offbook.runs import run_command

# In each, NAME and ADDRESS are another machine; CHILD is a program in Python that connects to it.
PYTHON = {
    "a datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (ADDRESS, 99))",
    "a datagram of several parts": """
socket.socket(type=socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, (ADDRESS, 99))""",
    "a datagram to a name": "socket.socket(type=socket.SOCK_DGRAM).connect((NAME, 99))",
    "a datagram of asyncio": """
import asyncio
async def send():
    loop = asyncio.get_running_loop()
    here = ("0.0.0.0", 0)
    way, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=here)
    way.sendto(b"x", (ADDRESS, 99))
asyncio.run(send())""",
    "gethostbyname_ex": "socket.gethostbyname_ex(NAME)",
    "gethostbyaddr": "socket.gethostbyaddr(ADDRESS)",
    "getnameinfo": "socket.getnameinfo((ADDRESS, 80), 0)",
    "getfqdn": "socket.getfqdn(ADDRESS)",
    "a socket that is given a name": "socket.socket().connect((NAME, 443))",
    "a name that begins as loopback": "socket.create_connection(('127.' + NAME, 443))",
    "an address as one number": """
import ipaddress
socket.create_connection((str(int(ipaddress.ip_address(ADDRESS))), 443))""",
    "a process of multiprocessing": """
import multiprocessing
connect = socket.create_connection
child = multiprocessing.get_context("fork").Process(target=connect, args=[(NAME, 443)])
child.start(); child.join()""",
    "a shell": "os.system(f'curl -sm 5 https://{NAME}/ >/dev/null')",
    "uvloop": """
import asyncio, uvloop
uvloop.run(asyncio.open_connection(NAME, 443))""",
    "a name in uvloop": """
import asyncio, uvloop
async def look_up():
    await asyncio.get_running_loop().getaddrinfo(NAME, 443)
uvloop.run(look_up())""",
    "an address in uvloop": """
import asyncio, uvloop
uvloop.run(asyncio.open_connection(ADDRESS, 443))""",
}
PYTHON_SEALED = {
    "the C type of sockets": "import _socket; _socket.socket().connect((ADDRESS, 443))",
    "ctypes": """
import ctypes
ctypes.CDLL(None).gethostbyname(NAME.encode())""",
    "`-I`": "subprocess.run([sys.executable, '-I', '-c', CHILD], stderr=-3)",
    "`env -i`": "subprocess.run([sys.executable, '-c', CHILD], env={}, stderr=-3)",
    "/dev/tcp": "subprocess.run(['bash', '-c', f': >/dev/tcp/{ADDRESS}/443'], stderr=-3)",
}
NODE = {
    "dns.lookup": "await dns.promises.lookup(NAME)",
    "dns.resolve": "await dns.promises.resolve4(NAME)",
    "dns.resolve with a callback": "await promisify(dns.resolve)(NAME)",
    "a resolver": "await new dns.promises.Resolver().resolve4(NAME)",
    "dns.reverse": "await dns.promises.reverse(ADDRESS)",
    "a datagram of Node": """
await promisify((done) => dgram.createSocket("udp4").send("x", 99, ADDRESS, done))()""",
    "a custom lookup": """
const socket = net.connect({ host: NAME, port: 443, lookup: dns.lookup });
socket.on("connect", () => socket.destroy()).on("error", () => {});
await new Promise((resolve) => socket.on("close", resolve))""",
    "a worker": """
await new Promise((resolve) =>
  new Worker(`fetch("https://${NAME}/").catch(() => {})`, { eval: true }).on("exit", resolve))""",
    "a process of Node": """
spawnSync(process.execPath, ["-e", `fetch("https://${NAME}/").catch(() => {})`])""",
}
NODE_SEALED = {
    "`env -i` of Node": """
const connect = `require("net").connect(443, "${ADDRESS}")`;
const program = `const way = ${connect}.on("connect", () => way.destroy()).on("error", () => {})`;
spawnSync(process.execPath, ["-e", program], { env: {} })""",
}
WAYS = {**PYTHON, **PYTHON_SEALED, **NODE, **NODE_SEALED}
NUMBERS = {way: number for number, way in enumerate(WAYS, 1)}

PYTHON_HEAD = """
import os, socket, subprocess, sys
def try_way(code, number):
    names = {"NAME": f"e{number}.unknown.example", "ADDRESS": f"192.0.2.{number}"}
    child = f"import socket; socket.create_connection(({names['ADDRESS']!r}, 443))"
    try:
        exec(code, {**globals(), **names, "CHILD": child})
    except (OSError, SystemExit):
        pass
"""
NODE_HEAD = """
const dgram = require("dgram"), dns = require("dns"), net = require("net");
const { promisify } = require("util"), { Worker } = require("worker_threads");
const { spawnSync } = require("child_process");
const tryWay = async (way, number) => {
  try { await way(`e${number}.unknown.example`, `192.0.2.${number}`); } catch {}
};
"""


def write_programs(folder: Path) -> tuple[Path, Path]:
    """Write a program for each language that tries all of its ways."""
    lines = [f"try_way({WAYS[way]!r}, {NUMBERS[way]})" for way in (*PYTHON, *PYTHON_SEALED)]
    python = folder / "escape.py"
    python.write_text("\n".join([PYTHON_HEAD, *lines]))
    calls = [
        f"await tryWay(async (NAME, ADDRESS) => {{ {WAYS[way]} }}, {NUMBERS[way]});"
        for way in (*NODE, *NODE_SEALED)
    ]
    node = folder / "escape.cjs"
    text = "\n".join([NODE_HEAD, "(async () => {", *calls, "process.exit(0);", "})();"])
    node.write_text(text)
    return python, node


def main(folder: Path, *, sealed: bool) -> None:
    """Run both programs as commands with a scripted model."""
    for command in zip((sys.executable, "node"), map(str, write_programs(folder)), strict=True):
        source = Playbook()
        source.load(when("Hi", [say("Hello.")]))
        run_command(source, command, echo=False, sealed=sealed, deadline=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sealed=sys.argv[2] == "sealed")
