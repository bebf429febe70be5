"""Starts a recorder in another process and kills it with -9 at a random moment, several times.

    python kill_recorder.py FOLDER TIMES SEED

Prints one line for each cassette that is not as it should be, and at the end the number of tries.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

from offbook.exchange import Reply, Request, Text, Usage
from offbook.sources.cassette import Recording, journal_path, load_cassette
from tests.sources.cassette.conversations import ask

ROUNDS = 12


class Model:
    async def reply(self, request: Request, /) -> Reply:
        return Reply((Text(f"about {request.prompt} " + "and so on " * 200),), usage=Usage(1, 1))


def record(path: Path, pipe: int) -> None:
    """Append several recordings; write a dot to the pipe for each finished interaction."""

    async def work() -> None:
        for round_ in range(ROUNDS):
            with Recording(Model(), path, append=True) as recording:
                for number in range(3):
                    await recording.reply(ask(f"question {round_}.{number}"))
                    os.write(pipe, b".")

    asyncio.run(work())


def try_once(path: Path, moments: random.Random) -> str:
    """Return the problem of the cassette after the kill, or an empty text."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            record(path, writer)
        finally:
            os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    time.sleep(moments.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    finished = 1
    while dots := os.read(reader, 4096):
        finished += len(dots)
    os.close(reader)
    file = load_cassette(path)
    if journal_path(path).exists():
        return "the journal is still there"
    texts = [item.response.reply_blocks for item in file]
    if not finished <= len(texts) <= finished + 1:
        return f"{finished} finished, {len(texts)} stored"
    if len({item.request.prompt_preview for item in file}) != len(texts):
        return "an interaction is there twice"
    return ""


def main(folder: Path, times: int, seed: int) -> None:
    moments = random.Random(seed)  # noqa: S311 - only the moment of the kill
    for attempt in range(times):
        problem = try_once(folder / f"{attempt}.yaml", moments)
        if problem:
            print(f"{attempt}: {problem}")  # noqa: T201 - read by the test
    print(f"tried {times}")  # noqa: T201 - as above


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
