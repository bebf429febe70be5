"""Runs that `offbook view --live` follows: each waits in the middle until the file `go` exists.

    python -m tests.viewer.live_runs loop FOLDER

prints the path of its trace, or of its run directory, before it begins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

LOOP_AGENT = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
runs = folder / "runs"
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (number + 1))
while number == 1 and not (folder / "go").exists():
    time.sleep(0.02)
print(['<event topic="build.task">a lid</event>', '<event topic="build.done">a lid</event>',
       'LOOP_COMPLETE'][number])
"""
PACK = """
version = 1
id = "orders"

[[fixtures]]
id = "script"
kind = "playbook"
path = "refund.yaml"

[[rubrics]]
id = "done"

[[rubrics.assertions]]
kind = "output"
contains = "done"

[[cases]]
id = "first"
subject = "agent.py:at_once"
playbook = "script"
rubrics = ["done"]

[[cases]]
id = "second"
subject = "agent.py:later"
playbook = "script"
rubrics = ["done"]
"""
PACK_AGENT = """
import pathlib, time
import anthropic

def at_once(prompt):
    client = anthropic.Anthropic(api_key="k")
    messages = [{"role": "user", "content": prompt}]
    return client.messages.create(model="m", max_tokens=50, messages=messages).content[0].text

def later(prompt):
    while not pathlib.Path(__file__).with_name("go").exists():
        time.sleep(0.02)
    return at_once(prompt)
"""


def _announce(path: Path) -> None:
    sys.stdout.write(f"{path}\n")
    sys.stdout.flush()


def run_loop(folder: Path) -> None:
    """A hat loop whose second iteration waits."""
    from offbook.workflows import Workspaces, cleanup, run, setup

    agent = folder / "agent.py"
    agent.write_text(LOOP_AGENT)
    name = f"live-{os.getpid()}"
    setup(name)
    try:
        _announce(Workspaces().find(name).session)
        command = [sys.executable, str(agent), str(folder)]
        run(name, "Build a kettle", backend="command", command=command)
        sys.stdin.read()  # the trace is there until the test has seen its end
    finally:
        cleanup(name)


def run_pack(folder: Path) -> None:
    """An eval run whose second case waits."""
    from offbook.surfaces.cli import main

    (folder / "pack.eval.toml").write_text(PACK)
    (folder / "agent.py").write_text(PACK_AGENT)
    (folder / "refund.yaml").write_text("- when: Refund order 7\n  do:\n    - say: done\n")
    _announce(folder / "run")
    os.chdir(folder)
    main(["eval", "run", "pack.eval.toml", "--output", "run", "--jobs", "1"])


if __name__ == "__main__":
    {"loop": run_loop, "pack": run_pack}[sys.argv[1]](Path(sys.argv[2]))
