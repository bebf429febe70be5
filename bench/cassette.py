"""Cassettes: the cost of opening and replaying them, and their memory.

Budgets, each against a figure of the same run: opening 1,000 chat interactions takes at most a
quarter of vcrpy's time and no more than cassetter's, if they are installed; a second opening takes
less than a hundredth of the first; a call costs the same in a cassette of 10 and of 10,000;
replaying through the OpenAI SDK costs at most a quarter more than the same work in bare Python;
10,000 interactions take less memory than twice the size of their file.
"""

from __future__ import annotations

import asyncio
import gc
import re
import statistics
import sys
import tempfile
import time
import tracemalloc
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.determinism.network_guard import block_network
from offbook.exchange.dialects.dialect import ConversationStore, HttpRequest
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply, Usage
from offbook.exchange.providers import detect_dialect
from offbook.sources.cassette.cassette_file import CassetteFile
from offbook.sources.cassette.format import (
    CassetteTitle,
    Interaction,
    Normalizer,
    RecordedRequest,
    RecordedResponse,
)
from offbook.sources.cassette.journal import append_interactions, load_cassette, new_cassette
from offbook.sources.cassette.replay import Cassette
from offbook.sources.inprocess.patching import intercept
from offbook.sources.server.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.model import Request

ROUNDS = 5
CALLS = 200
ANSWER = "The order was delivered on time, and the refund is on its way. " * 12
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Looks something up. " * 5,
            "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}},
        },
    }
    for number in range(3)
]


def body(number: int) -> dict[str, Any]:
    """Return the body of a request, about 1.5 kB."""
    content = f"Refund order {number}. " + "Please be kind. " * 20
    return {
        "model": "gpt-5",
        "messages": [{"role": "user", "content": content}],
        "tools": TOOLS,
    }


def decode(number: int) -> Request:
    """Return the decoded request."""
    wire = HttpRequest("POST", "/v1/chat/completions", {}, msgspec.json.encode(body(number)))
    dialect = detect_dialect(wire)
    assert dialect is not None
    return dialect.decode(wire, ConversationStore())


def write_cassette(path: Path, count: int) -> Path:
    """Write a cassette of `count` chat interactions, in the format of a recording."""
    normalizer = Normalizer()
    items: list[Interaction] = []
    for number in range(1, count + 1):
        request = decode(number)
        head = msgspec.structs.asdict(normalizer.settings(request)) if number == 1 else {"head": 1}
        recorded_request = RecordedRequest(
            prompt_hash=normalizer.hash_request(request),
            prompt_preview=request.prompt[:90],
            dialect="openai-chat",
            messages=tuple(normalizer.clean_message(m, i) for i, m in enumerate(request.messages)),
            **head,
        )
        recorded_response = RecordedResponse(
            output=ANSWER, tokens=300, usage=Usage(200, 100), duration_ms=900
        )
        items.append(
            Interaction(
                id=number, at_ms=number, request=recorded_request, response=recorded_response
            )
        )
    title = CassetteTitle(path.name, hashed=normalizer.fingerprint)
    path.write_bytes(append_interactions(new_cassette(title), items))
    return path


def least_cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest round."""
    seconds: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        before = time.process_time()
        work()
        seconds.append(time.process_time() - before)
    return min(seconds)


def per_call(path: Path, count: int) -> float:
    """Return the CPU seconds of a replayed call near the end of the cassette."""
    requests = [decode(number) for number in range(1, count + 1)]
    source = Cassette(path)
    for number in range(1, count - CALLS + 1):
        source._cursor.take(number)  # noqa: SLF001 - the calls before are not measured
    last = requests[-CALLS:] if count >= CALLS else requests

    async def play() -> float:
        costs: list[float] = []
        for request in last:
            before = time.process_time()
            await source.reply(request)
            costs.append(time.process_time() - before)
        return statistics.median(costs)

    return asyncio.run(play())


def time_peers(folder: Path, count: int) -> dict[str, float]:
    """Return the CPU seconds of the installed peers for opening the same content."""
    seconds: dict[str, float] = {}
    if find_spec("vcr") is not None:
        seconds["vcrpy"] = _time_vcrpy(folder / "vcr.yaml", count)
    if find_spec("cassetter") is not None:
        seconds["cassetter"] = _time_cassetter(folder / "vcr.yaml", count)
    return seconds


def _vcr_text(count: int) -> str:
    from offbook.files import dump_yaml

    answer = {"id": "c", "object": "chat.completion", "choices": [{"message": {"content": ANSWER}}]}
    interactions = [
        {
            "request": {
                "body": msgspec.json.encode(body(number)).decode(),
                "headers": {"content-type": ["application/json"]},
                "method": "POST",
                "uri": "https://api.openai.com/v1/chat/completions",
            },
            "response": {
                "body": {"string": msgspec.json.encode(answer).decode()},
                "headers": {"content-type": ["application/json"]},
                "status": {"code": 200, "message": "OK"},
            },
        }
        for number in range(1, count + 1)
    ]
    return dump_yaml({"interactions": interactions, "version": 1})


def _time_vcrpy(path: Path, count: int) -> float:
    import vcr.cassette

    path.write_text(_vcr_text(count))
    return least_cpu(lambda: vcr.cassette.Cassette.load(path=str(path)))


def _time_cassetter(path: Path, count: int) -> float:
    import cassetter

    if not path.exists():
        path.write_text(_vcr_text(count))
    return least_cpu(lambda: cassetter.Cassette(str(path)).load())


def replay_in_bare_python(path: Path, count: int) -> Callable[[bytes], bytes]:
    """Return a function that replays a cassette: the floor of what a replay can cost.

    It decodes a request, digests its settings and its words, looks that up, reads the recorded
    response, and encodes a completion. It hides no secrets, checks nothing and explains nothing.
    """
    import yaml_rs

    def digest(asked: dict[str, Any]) -> str:
        hashed = sha256(msgspec.json.encode((asked["model"], asked["tools"])))
        for message in asked["messages"]:
            hashed.update(f"{message['role']} {' '.join(message['content'].split())}".encode())
        return hashed.hexdigest()

    text = path.read_text(encoding="utf-8")
    starts = [found.start() for found in re.finditer(r"^    response:", text, re.MULTILINE)]
    places = {
        digest(body(number)): (start, text.find("\n\n", start))
        for number, start in zip(range(1, count + 1), starts, strict=True)
    }

    def reply(raw: bytes) -> bytes:
        asked = msgspec.json.decode(raw)
        key = digest(asked)
        start, end = places[key]
        stored = yaml_rs.loads(text[start : end if end > 0 else None])["response"]
        message = {"role": "assistant", "content": stored["output"], "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        usage = {
            "prompt_tokens": stored["usage"]["input"],
            "completion_tokens": stored["usage"]["output"],
            "total_tokens": stored["tokens"],
        }
        made = {"id": f"chatcmpl-{key[:12]}", "object": "chat.completion", "created": 1}
        made |= {"model": asked["model"], "choices": [choice], "usage": usage}
        return msgspec.json.encode(made)

    return reply


def sdk_costs(path: Path, count: int) -> tuple[float, float, float]:
    """Return the CPU seconds of an OpenAI SDK call, of which all requests differ.

    Over its mock transport with one response, with a replay in bare Python, and replayed.
    """
    import httpx2
    import openai

    request = decode(1)
    dialect = detect_dialect(HttpRequest("POST", "/v1/chat/completions"))
    assert dialect is not None
    out = dialect.encode(Reply((Text(ANSWER),), usage=Usage(200, 100)), request)

    def answer(_: Any) -> Any:
        return httpx2.Response(out.status, headers=out.headers, content=out.body)

    replay = replay_in_bare_python(path, count)

    def answer_bare(request: Any) -> Any:
        return httpx2.Response(200, headers=out.headers, content=replay(request.content))

    mocked, bare = (
        openai.OpenAI(
            api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(handler))
        )
        for handler in (answer, answer_bare)
    )
    replayed = openai.OpenAI(api_key="none")
    endpoint = Endpoint(Cassette(path), url="", detect_dialect=detect_dialect)
    costs: tuple[list[float], ...] = ([], [], [])
    with block_network(), intercept(endpoint.answer):
        for number in range(1, CALLS + 1):
            for seconds, sdk in zip(costs, (mocked, bare, replayed), strict=True):
                before = time.process_time()
                sdk.chat.completions.create(**body(number))
                seconds.append(time.process_time() - before)
    plain, floor, ours = map(statistics.median, costs)
    return plain, floor, ours


def measure_memory(path: Path) -> float:
    """Return the peak memory of opening a cassette, as a multiple of its file size."""
    size = path.stat().st_size
    gc.collect()
    tracemalloc.start()
    source = Cassette(CassetteFile(path.read_bytes(), path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(source.file)
    return peak / size


def main() -> int:
    """Measure, print, and return 1 if a budget is exceeded."""
    exceeded: list[str] = []

    def report(ok: bool, figure: str) -> None:  # noqa: FBT001 - a verdict
        print(f"{'  ' if ok else '! '}{figure}")
        if not ok:
            exceeded.append(figure)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cassettes = {
            count: write_cassette(folder / f"{count}.yaml", count) for count in (10, 1000, 10_000)
        }
        raw = cassettes[1000].read_bytes()
        first = least_cpu(lambda: CassetteFile(raw))
        load_cassette(cassettes[1000])
        second = least_cpu(lambda: load_cassette(cassettes[1000]))
        print(f"opening 1,000 interactions ({len(raw) >> 10} kB): {first * 1e3:.0f} ms of CPU")
        report(second < first / 100, f"a second opening: {second * 1e3:.3f} ms (under a hundredth)")
        peers = time_peers(folder, 1000)
        for peer, allowed in (("vcrpy", 0.25), ("cassetter", 1.0)):
            if peer in peers:
                share = first / peers[peer]
                figure = (
                    f"against {peer}'s {peers[peer] * 1e3:.0f} ms: {share:.2f} (at most {allowed})"
                )
                report(share <= allowed, figure)
            else:
                print(f"  {peer} is not installed")
        costs = {count: per_call(path, count) for count, path in cassettes.items()}
        shown = ", ".join(f"{count:,}: {cost * 1e6:.0f} µs" for count, cost in costs.items())
        report(costs[10_000] < 1.5 * costs[1000], f"a call in cassettes of {shown} (constant)")
        plain, bare, replayed = sdk_costs(cassettes[1000], 1000)
        figure = (
            f"a call of the OpenAI SDK: {plain * 1e6:.0f} µs, replayed in bare Python"
            f" {bare * 1e6:.0f} µs, by Offbook {replayed * 1e6:.0f} µs"
        )
        report(replayed <= 1.25 * bare, f"{figure} ({replayed / bare:.2f}, at most 1.25)")
        memory = measure_memory(cassettes[10_000])
        report(
            memory < 2, f"10,000 interactions in memory: {memory:.2f} times their file (under 2)"
        )
    return int(bool(exceeded))


if __name__ == "__main__":
    sys.exit(main())
