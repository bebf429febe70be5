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

from offbook.exchange import Reply, Request, Text, ToolCall, ToolEnd, ToolRun, Usage
from offbook.sources.cassette import Recording, journal_path, load_cassette
from tests.sources.cassette.conversations import ask

ROUNDS = 12


class Model:
    async def reply(self, request: Request, /) -> Reply:
        call = ToolCall(f"call {request.prompt}", "look", {"at": request.prompt})
        text = Text(f"about {request.prompt} " + "and so on " * 200)
        return Reply((text, call), usage=Usage(1, 1))


def record(path: Path, pipe: int) -> None:
    """Append several recordings; write a dot for each interaction and a t for each tool."""

    async def work() -> None:
        for round_ in range(ROUNDS):
            with Recording(Model(), path, append=True, tracks="all") as recording:
                for number in range(3):
                    reply = await recording.reply(ask(f"question {round_}.{number}"))
                    os.write(pipe, b".")
                    assert recording.tool_track is not None
                    (call,) = reply.calls
                    run = ToolRun(call.name, call.arguments, call.id)
                    recording.tool_track.add(run, ToolEnd("seen " * 200))
                    os.write(pipe, b"t")

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
    marks = os.read(reader, 1)
    time.sleep(moments.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reader, 4096):
        marks += more
    os.close(reader)
    finished, executed = marks.count(b"."), marks.count(b"t")
    file = load_cassette(path)
    if journal_path(path).exists():
        return "the journal is still there"
    texts = [item.response.reply_blocks for item in file]
    if not finished <= len(texts) <= finished + 1:
        return f"{finished} finished, {len(texts)} stored"
    if len({item.request.prompt_preview for item in file}) != len(texts):
        return "an interaction is there twice"
    tools = [[tool.input["at"] for tool in item.tools] for item in file]
    if not executed <= sum(map(len, tools)) <= executed + 1:
        return f"{executed} executed, {sum(map(len, tools))} stored"
    if any(
        at not in ([], [item.request.prompt_preview]) for at, item in zip(tools, file, strict=True)
    ):
        return "an execution is after another interaction"
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
