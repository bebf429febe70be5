"""Records in a process of its own and kills it with -9 at a chance moment, again and again.

    python killing.py FOLDER TIMES SEED

Tells one line for each time that a cassette was not as it should be, and then how often it tried.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

from offbook.exchange.messages import Text
from offbook.exchange.model import Reply, Request, Usage
from offbook.sources.cassette.journal import journal_path, load_cassette
from offbook.sources.cassette.recording import Recording
from tests.sources.cassette.conversations import ask

ROUNDS = 12


class Model:
    async def reply(self, request: Request, /) -> Reply:
        return Reply((Text(f"about {request.prompt} " + "and so on " * 200),), usage=Usage(1, 1))


def record(path: Path, told: int) -> None:
    """Record several times over, adding; tell each finished interaction."""

    async def work() -> None:
        for at in range(ROUNDS):
            with Recording(Model(), path, append=True) as recording:
                for number in range(3):
                    await recording.reply(ask(f"question {at}.{number}"))
                    os.write(told, b".")

    asyncio.run(work())


def try_once(path: Path, chance: random.Random) -> str:
    """What is wrong with the cassette after the kill, if anything."""
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            record(path, told)
        finally:
            os._exit(0)
    os.close(told)
    os.read(heard, 1)
    time.sleep(chance.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    finished = 1
    while dots := os.read(heard, 4096):
        finished += len(dots)
    os.close(heard)
    tape = load_cassette(path)
    if journal_path(path).exists():
        return "the journal is still there"
    texts = [item.response.said for item in tape]
    if not finished <= len(texts) <= finished + 1:
        return f"{finished} finished, {len(texts)} kept"
    if len({item.request.prompt_preview for item in tape}) != len(texts):
        return "an interaction is there twice"
    return ""


def main(folder: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - when to strike
    for at in range(times):
        wrong = try_once(folder / f"{at}.yaml", chance)
        if wrong:
            print(f"{at}: {wrong}")  # noqa: T201 - read by the test
    print(f"tried {times}")  # noqa: T201 - as above


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
