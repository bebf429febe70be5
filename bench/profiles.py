"""Where the time goes: a prompt in a session, a served chat request, a replayed call of an SDK.

    ./dev bench profiles                  all three
    python bench/profiles.py prompt       one of them: prompt, served or sdk

A timer notes the stack a thousand times a second. The samples are printed as the share of each
folder of `src/offbook`, and written as a flame graph, `.logs/NAME.svg`. A sample belongs to the
innermost frame of Offbook, so that encoding, writing and hashing count for their caller. The share
of the trace is that of `trace` and `secrets`. The file is not called `profile.py`: that is a module
of Python, which `cProfile` imports.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path
from types import CodeType, FrameType
from urllib.parse import urlsplit

import offbook
from offbook import Mocks, Server, call, say, session, when
from offbook.exchange.providers import detect_dialect
from offbook.sources.cassette import Cassette
from offbook.sources.inprocess.patching import intercept
from offbook.sources.server.endpoint import Endpoint

LOGS = Path(__file__).parents[1] / ".logs"
PACKAGE = f"{Path(offbook.__file__).parent}/"
PROMPTS, REQUESTS, CALLS = 8_000, 8_000, 1_000
INTERVAL = 0.001
WAITING = "select"  # the function in which a server waits for a request
SEND = "send"  # the argument of the process that is the client
WIDTH, HEIGHT = 1600, 17  # of the picture, and of one function in it
Stack = tuple[str, ...]


def sample(work: Callable[[], object]) -> Counter[Stack]:
    """Call `work` in the main thread; return the stacks that a timer saw meanwhile.

    A signal, not a thread: another thread gets its turn where the first one waits, and would see
    little else.
    """
    stacks: Counter[Stack] = Counter()

    def note(_: int, frame: FrameType | None) -> None:
        if stack := read_stack(frame):
            stacks[stack] += 1
        signal.setitimer(signal.ITIMER_REAL, INTERVAL)  # not before: deep stacks take longer

    before = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return stacks


def read_stack(frame: FrameType | None) -> Stack:
    """Return the functions of a stack, the outermost first; an empty one if it waits."""
    if frame is None or frame.f_code.co_name == WAITING:
        return ()
    names: list[str] = []
    while frame is not None:
        names.append(name_of(frame.f_code))
        frame = frame.f_back
    return tuple(reversed(names))


@cache
def name_of(code: CodeType) -> str:
    """Return the file and the name of a function; of other packages with a slash before them."""
    file = code.co_filename
    where = file.removeprefix(PACKAGE) if file.startswith(PACKAGE) else f"/{Path(file).name}"
    return f"{where} {code.co_qualname}"


# ---------------------------------------------------------------------------------- work


def profile_prompt() -> Counter[Stack]:
    """Profile a prompt with one tool call in a session."""
    import session as benchmark

    async def prompts() -> None:
        async with session(extensions=[benchmark.weather]) as rehearsal:
            for _ in range(PROMPTS):
                steps = [call("weather", {"city": "Rome"}), say("It is sunny.")]
                await rehearsal.run(when("Weather?", steps))

    return sample(lambda: asyncio.run(prompts()))


def profile_served() -> Counter[Stack]:
    """Profile a chat request to a server; the client is another process."""

    async def serve() -> None:
        async with Server() as server:
            url = server.mount(Mocks([{"match": "*", "text": "It is sunny."}])).url
            program = (sys.executable, __file__, SEND, url)
            client = await asyncio.create_subprocess_exec(*program)
            if await client.wait():
                sys.exit(f"the client failed with exit code {client.returncode}")

    return sample(lambda: asyncio.run(serve()))


def send_requests(url: str) -> None:
    """Send chat requests, each with another text."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    for number in range(REQUESTS):
        messages = [{"role": "user", "content": f"Weather on day {number}?"}]
        body = json.dumps({"model": "m", "messages": messages})
        connection.request("POST", f"{address.path}/v1/chat/completions", body)
        response = connection.getresponse()
        text = response.read()
        assert response.status == 200, text
    connection.close()


def profile_sdk() -> Counter[Stack]:
    """Profile a call of the OpenAI SDK that a cassette answers in process."""
    import cassette
    import openai

    def calls() -> None:
        for number in range(1, CALLS + 1):
            client.chat.completions.create(**cassette.body(number))

    with tempfile.TemporaryDirectory() as folder:
        path = cassette.write_cassette(Path(folder, "c.yaml"), CALLS)
        client = openai.OpenAI(api_key="none")
        endpoint = Endpoint(Cassette(path), url="", detect_dialect=detect_dialect)
        with intercept(endpoint.answer):
            return sample(calls)


# ------------------------------------------------------------------------------- results


def folder_of(stack: Stack) -> str:
    """Return the folder of Offbook that a sample belongs to, or another name."""
    for name in reversed(stack):
        if not name.startswith("/"):
            return name.partition(" ")[0].rpartition("/")[0] or "offbook"
    return "(outside)"


def draw(stacks: Counter[Stack]) -> str:
    """Return a flame graph: a function is as wide as its share, its callers are below it."""
    total = stacks.total()
    depth = max(map(len, stacks))
    parts: list[str] = []
    at: dict[Stack, float] = {}
    widths: Counter[Stack] = Counter()
    for stack, count in stacks.items():
        for length in range(1, len(stack) + 1):
            widths[stack[:length]] += count
    # A caller comes before what it calls; those with the same caller stand side by side.
    for stack, count in sorted(widths.items(), key=lambda item: (len(item[0]), item[0])):
        left = at.get(stack[:-1], 0.0)
        at[stack[:-1]] = left + count
        at[stack] = left
        x, width = left / total * WIDTH, count / total * WIDTH
        if width < 0.5:
            continue
        y = (depth - len(stack)) * HEIGHT
        name = escape(stack[-1])
        color = "#ddd" if stack[-1].startswith("/") else "#fb8"
        shown = name.rpartition(" ")[2] if width > 40 else ""
        parts.append(
            f'<g><title>{name} {count / total:.1%}</title><rect x="{x:.1f}" y="{y}"'
            f' width="{width:.1f}" height="{HEIGHT - 1}" fill="{color}"/>'
            f'<svg x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}">'
            f'<text x="3" y="12">{shown}</text></svg></g>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{depth * HEIGHT}"'
        f' font-family="monospace" font-size="11">{"".join(parts)}</svg>\n'
    )


PROFILES: dict[str, Callable[[], Counter[Stack]]] = {
    "prompt": profile_prompt,
    "served": profile_served,
    "sdk": profile_sdk,
}


def main(names: list[str]) -> None:
    """Profile, print the shares of the folders, and write the flame graphs."""
    if names[:1] == [SEND]:
        send_requests(names[1])
        return
    LOGS.mkdir(exist_ok=True)
    for name in names or PROFILES:
        stacks = PROFILES[name]()
        file = LOGS / f"{name}.svg"
        file.write_text(draw(stacks))
        print(f"{name}: {stacks.total()} samples, {file}")
        shares: Counter[str] = Counter()
        for stack, count in stacks.items():
            shares[folder_of(stack)] += count
        for folder, count in shares.most_common():
            print(f"  {count / stacks.total():6.1%}  {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
