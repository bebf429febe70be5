"""A test with the real pi: cold against bare `pi -p`, and warm against cold.

Both run the same playbook with the same extension; the model of the bare pi is served by Offbook
as well. Budgets: a cold test takes at most 15 % more wall time than bare pi, and a warm one a tenth
of a cold one. The figures are the best of several rounds that alternate, since others may use the
machine.

    ./dev bench pi                           # the pi of .clients or of the PATH
    PI=/path/to/pi ./dev bench pi            # another one
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from offbook.runs.api import drive
from offbook.sources.playbook.actions import Turn, call, say, when
from offbook.sources.playbook.playbook import Playbook
from offbook.sources.server.server import Server
from offbook.subjects.clis.pi import Pi
from offbook.subjects.clis.pi.pi_process import close_hosts
from offbook.subjects.process import isolated_env

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("OFFBOOK_CLIENTS", str(ROOT / ".clients"))
EXTENSION = ROOT / "tests" / "subjects" / "pi" / "extension.ts"
PROGRAM = os.environ.get("PI") or (Pi.client.find() if Pi.client else None)
ROUNDS = 5
OVERHEAD, SPEEDUP = 1.15, 10.0
DEADLINE = 120


def script() -> Turn:
    """Return the playbook of one test."""
    return when("Create an item", [call("create"), say("Created.")])


def run_bare(server: Server) -> None:
    """Run `pi -p` without Offbook around it; only its model is scripted."""
    playbook = Playbook()
    playbook.load(script())
    endpoint = server.mount(playbook)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        pi = Pi(program=PROGRAM)
        for name, text in pi.files(endpoint.url).items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        env = isolated_env(home, {**endpoint.variables, "PI_OFFLINE": "1", "PI_TELEMETRY": "0"})
        env["PATH"] = f"{Path(PROGRAM or '').parent}{os.pathsep}{env['PATH']}"
        quiet = ["--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes"]
        words = [str(PROGRAM), "--provider", "offbook", "--model", "offbook", *quiet]
        words += ["--no-context-files", "--offline", "--no-session", "-e", str(EXTENSION)]
        words += ["-p", "Create an item"]
        done = subprocess.run(
            words, cwd=home, env=env, capture_output=True, text=True, timeout=DEADLINE, check=True
        )
    assert done.stdout.strip() == "Created.", done
    assert playbook.remaining == 0
    endpoint.close()


def run_test(*, warm: bool) -> None:
    """Run one test with Offbook."""
    with drive(Pi(extensions=[EXTENSION], program=PROGRAM, warm=warm)) as rehearsal:
        run = rehearsal.run(script())
        assert run.output == "Created."


def measure(work: Callable[[], None]) -> float:
    """Return the seconds that a function takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    """Print the figures; return 1 if a budget is exceeded."""
    if PROGRAM is None:
        print("pi is not installed: run ./dev clients")
        return 1
    bare: list[float] = []
    cold: list[float] = []
    warm: list[float] = []
    with Server() as server:
        run_test(warm=True)  # starts the warm process
        for _ in range(ROUNDS):
            bare.append(measure(lambda: run_bare(server)))
            cold.append(measure(lambda: run_test(warm=False)))
            warm.append(measure(lambda: run_test(warm=True)))
    close_hosts()
    overhead, speedup = min(cold) / min(bare), min(cold) / min(warm)
    print(f"bare pi -p            {min(bare):7.3f} s")
    print(f"cold test             {min(cold):7.3f} s  {overhead:6.2f} x bare, at most {OVERHEAD}")
    print(
        f"warm test             {min(warm):7.3f} s  {speedup:6.1f} x faster, at least {SPEEDUP:g}"
    )
    return int(overhead > OVERHEAD or speedup < SPEEDUP)


if __name__ == "__main__":
    sys.exit(main())
