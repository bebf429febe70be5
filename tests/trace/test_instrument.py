"""A trace has each message once, and every request can be rebuilt from it."""

import asyncio
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offbook.errors import FormatError, ModelError
from offbook.exchange import (
    AnyBlock,
    History,
    Message,
    Reply,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    user,
)
from offbook.trace import (
    Event,
    Events,
    Hub,
    Recorder,
    TracedSource,
    instrument,
    read_trace,
    rebuild_requests,
)
from tests.exchange.strategies import conversations, json_objects, messages, tools, words


class Echo:
    """Answers with the given replies, then with "ok"."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    async def reply(self, _: Request, /) -> Reply:
        return self._replies.pop(0) if self._replies else Reply((Text("ok"),))


class Recorded:
    """A source whose exchanges go to a file."""

    def __init__(self, path: Path, source: Any, *, tools: bool = False) -> None:
        hub = Hub()
        self._recorder = Recorder(path, ts=1)
        hub.subscribe(self._recorder.record)
        self._hub = hub
        self.source = TracedSource(source, hub, tools=tools)

    def ask(self, *requests: Request) -> list[Event]:
        async def ask() -> None:
            for request in requests:
                await self.source.reply(request)

        asyncio.run(ask())
        assert self._hub.errors == []
        return self.events()

    def events(self) -> list[Event]:
        events, faults = read_trace(self._recorder.path)
        assert faults == []
        return events

    def close(self) -> None:
        self._recorder.close()


heads = st.builds(
    Request,
    system=words,
    tools=st.lists(tools, max_size=2).map(tuple),
    model=st.sampled_from(["a", "b"]),
    parameters=json_objects,
    metadata=json_objects,
    stream=st.booleans(),
)


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    """Return requests of several conversations that grow, are compacted, and change their heads."""
    talks = [History(draw(conversations)) for _ in range(draw(st.integers(1, 3)))]
    requests: list[Request] = []
    for _ in range(draw(st.integers(1, 6))):
        index = draw(st.integers(0, len(talks) - 1))
        match draw(st.sampled_from(["grow", "grow", "compact", "replace", "repeat"])):
            case "grow":
                talks[index] = talks[index].plus(*draw(conversations))
            case "compact":
                talks[index] = History([user("summary"), *talks[index][-2:]])
            case "replace":
                talks[index] = History([*talks[index][:-1], draw(messages)])
            case _:
                pass
        head = draw(heads)
        requests.append(
            Request(
                talks[index],
                head.system,
                head.tools,
                head.model,
                head.parameters,
                head.metadata,
                head.stream,
            )
        )
    return requests


@settings(max_examples=min(40, settings().max_examples))  # each writes a file
@given(request_lists(), st.sampled_from([1, 1024]))
def test_every_request_is_rebuilt(
    tmp_path_factory: pytest.TempPathFactory, requests: list[Request], remembered: int
):
    path = tmp_path_factory.mktemp("trace") / "t.jsonl"
    recorded = Recorded(path, Echo())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instrument, "MAX_DIGESTS", remembered)
        events = recorded.ask(*requests)
    recorded.close()
    assert list(rebuild_requests(events)) == requests


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_concurrent_conversations_are_rebuilt(order: list[int]):
    hub = Hub()
    emitted: list[Event] = []
    hub.subscribe(emitted.append)
    gates: list[asyncio.Future[None]] = []
    arrivals: asyncio.Queue[None] = asyncio.Queue()

    class Slow:
        """Answers when its gate opens, so that requests overlap."""

        async def reply(self, request: Request, /) -> Reply:
            gate = asyncio.get_running_loop().create_future()
            gates.append(gate)
            arrivals.put_nowait(None)
            await gate
            return Reply((Text(f"to {request.prompt}"),))

    requests: list[Request] = []

    async def talk() -> None:
        source = TracedSource(Slow(), hub)
        talks = {who: History([user(f"I am {who}")]) for who in range(3)}
        pending: list[tuple[int, asyncio.Task[Reply]]] = []
        for index, who in enumerate(order):
            request = Request(talks[who].plus(user(f"{who} says {index}")), system=f"{who % 2}")
            requests.append(request)
            talks[who] = request.messages
            pending.append((who, asyncio.ensure_future(source.reply(request))))
            await arrivals.get()
            if index % 2:  # answer the one before the last, out of order
                gates[index - 1].set_result(None)
                earlier, task = pending[-2]
                reply = await task
                if talks[earlier] is requests[index - 1].messages:
                    talks[earlier] = talks[earlier].plus(reply.message)
        for gate in gates:
            if not gate.done():
                gate.set_result(None)
        await asyncio.gather(*(task for _, task in pending))

    asyncio.run(talk())
    assert list(rebuild_requests(emitted)) == requests


def long_talk(path: Path, turns: int) -> int:
    recorded = Recorded(path, Echo())
    history = History()
    for index in range(turns):
        history = history.plus(user(f"question {index:06}"))
        recorded.ask(Request(history, system="s" * 1000, tools=(Tool("t", "d" * 1000),)))
        history = history.plus(Message("assistant", (Text("ok"),)))
    recorded.close()
    return path.stat().st_size


def test_a_trace_grows_linearly(tmp_path: Path):
    sizes = [long_talk(tmp_path / f"{turns}.jsonl", turns) for turns in (20, 40, 80)]
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second == pytest.approx(2 * first, rel=0.05)


def test_half_a_character_in_a_system_prompt_is_recorded(tmp_path: Path):
    recorded = Recorded(tmp_path / "t.jsonl", Echo())
    events = recorded.ask(Request(History([user("hi")]), system="half \ud83d"))
    recorded.close()
    assert events[0].data["system"] == r"half \ud83d"


def test_a_request_has_only_the_new_messages_and_the_head_once(tmp_path: Path):
    recorded = Recorded(tmp_path / "t.jsonl", Echo())
    history = History([user("one")])
    recorded.ask(Request(history, system="S"))
    later = history.plus(Message("assistant", (Text("ok"),)), user("two"))
    first, _, second, _ = recorded.ask(Request(later, system="S"))
    recorded.close()
    assert [len(first.data["new"]), len(second.data["new"])] == [1, 1]
    assert (first.data["count"], second.data["count"]) == (1, 3)
    assert "system" in first.data
    assert "system" not in second.data
    assert first.data["head"] == second.data["head"]


@pytest.mark.parametrize(
    "details", [{1: 2}, {(1, 2)}, {"a": {3, 1, 2}}, float("nan"), 1e400, object(), 2**70]
)
def test_details_that_are_not_json_do_not_break_later_requests(tmp_path: Path, details: Any):
    recorded = Recorded(tmp_path / "t.jsonl", Echo())
    result = Message("tool", (ToolResult("1", (Text("done"),), details=details),))
    history = History([user("go"), result])
    recorded.ask(Request(history), Request(history.plus(user("on"))))
    recorded.close()
    requests = list(rebuild_requests(recorded.events()))
    assert [[message.text for message in request.messages] for request in requests] == [
        ["go", ""],
        ["go", "", "on"],
    ]
    assert requests[1].messages[1].results[0].text == "done"


def test_a_trace_without_its_beginning_is_an_error(tmp_path: Path):
    recorded = Recorded(tmp_path / "t.jsonl", Echo())
    history = History([user("one")])
    events = recorded.ask(Request(history), Request(history.plus(user("two"))))
    recorded.close()
    with pytest.raises(FormatError, match="continues a conversation missing from the trace"):
        list(rebuild_requests(events[1:]))


def test_a_damaged_request_is_an_error_with_its_number():
    event = Event(1, "model.request", {"exchange": 1}, seq=7)
    with pytest.raises(FormatError, match=r"event 7, model\.request, cannot be read"):
        list(rebuild_requests([event]))


class Failing:
    async def reply(self, _: Request, /) -> Reply:
        raise ModelError("slow down", status=429, retry_after=2.5)


def test_an_error_of_the_provider_is_emitted_and_raised(tmp_path: Path):
    recorded = Recorded(tmp_path / "t.jsonl", Failing())
    with pytest.raises(ModelError):
        recorded.ask(Request(History([user("hi")])))
    recorded.close()
    assert recorded.events()[-1].data == {
        "exchange": "x1",
        "message": "slow down",
        "status": 429,
        "category": "rate_limit",
        "retry_after": 2.5,
    }


def test_a_reply_has_its_usage_model_id_role_and_step(tmp_path: Path):
    reply = Reply((Text("hi"),), usage=Usage(1, 2), model="m", id="r1", step=3, role="helper")
    recorded = Recorded(tmp_path / "t.jsonl", Echo(reply))
    events = recorded.ask(Request(History([user("hi")])))
    recorded.close()
    data = events[-1].data
    assert {key: data[key] for key in ("model", "id", "role", "step")} == {
        "model": "m",
        "id": "r1",
        "role": "helper",
        "step": 3,
    }
    assert data["usage"] == {"input": 1, "output": 2}


def test_tool_calls_are_taken_from_the_messages_of_an_agent_that_emits_none(tmp_path: Path):
    call = ToolCall("c1", "bash", {"command": "ls"})
    reply = Reply((call,), "tool_use", step=1)
    recorded = Recorded(tmp_path / "t.jsonl", Echo(reply), tools=True)
    history = History([user("hi")])
    result = Message("tool", (ToolResult("c1", (Text("a b"),), failed=True),))
    answered = history.plus(reply.message, result)
    recorded.ask(Request(history), Request(answered), Request(answered))
    recorded.close()
    events = Events(recorded.events())
    assert [(c.tool_name, c.input, c.step) for c in events.tool_calls] == [
        ("bash", {"command": "ls"}, 1)
    ]
    assert [(r.tool_name, r.text, r.is_error, r.step) for r in events.tool_results] == [
        ("bash", "a b", True, 1)
    ]


def test_a_result_in_a_text_is_emitted_although_its_call_was_in_an_earlier_request(tmp_path: Path):
    made = "[{'id': 'c1', 'type': 'function', 'function': {'name': 'add', 'arguments': {'x': 1}}}]"
    said = Message("assistant", (Text(f"Calling tools:\n{made}"),))
    history = (user("Add 1"), said, user("Observation:\n42"))
    call = ToolCall("c1", "add", {"x": 1})
    recorded = Recorded(tmp_path / "t.jsonl", Echo(Reply((call,), "tool_use")), tools=True)
    events = recorded.ask(*(Request(History(history[:count])) for count in (1, 2, 3)))
    recorded.close()
    results = [event.data["call_id"] for event in events if event.event == "tool.result"]
    assert results == ["c1"]


class Looking:
    """Answers a prompt with its words, and calls a tool if it asks for one."""

    def __init__(self) -> None:
        self._blocks = cache(self._answer)

    async def reply(self, request: Request, /) -> Reply:
        return Reply(self._blocks(request.prompt))

    def _answer(self, prompt: str) -> tuple[AnyBlock, ...]:
        call = (ToolCall(f"call {prompt}", "look", {"at": prompt}),) if "look" in prompt else ()
        return (Text(f"an answer to {prompt}"), *call)


PROMPTS = ["please tell me", "look at this", "please tell me more"]
asked = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(PROMPTS), st.sampled_from(["", "text", "result"])),
    max_size=12,
)


@settings(max_examples=60)
@given(asked, st.sampled_from([2, 1024]))
def test_the_same_changes_are_found_where_nothing_listens(
    asked: list[tuple[int, str, str]], open_at_once: int
):
    def requests() -> Generator[Request, Reply]:
        """Yield the requests of several agents, some of which change what was said."""
        talks: dict[int, History] = {}
        for agent, prompt, lie in asked:
            messages = talks.get(agent, History()).plus(user(prompt))
            reply = yield Request(messages)
            blocks = (Text("never said"),) if lie == "text" else reply.blocks
            messages = messages.plus(Message("assistant", blocks))
            for call in reply.calls:
                seen = Message("tool", (ToolResult(call.id, (Text("seen"),), None),))
                messages = messages.plus(seen)
                yield Request(messages)
                if lie == "result":
                    changed = ToolResult(call.id, (Text("changed"),), None)
                    messages = messages.plus(Message("tool", (changed,)))
            talks[agent] = messages

    async def ask(source: TracedSource) -> list[tuple[str, list[str]]]:
        answered: list[tuple[str, list[str]]] = []
        made = requests()
        try:
            request = next(made)
            while True:
                reply = await source.reply(request)
                # what later requests are compared with, once it is noted
                known = list[str]() if source._opened else list(source._open)  # pyright: ignore[reportPrivateUsage]
                answered.append((str(source.history_error), known))
                request = made.send(reply)
        except StopIteration:
            return answered

    heard = Hub()
    heard.subscribe(lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instrument, "MAX_CONVERSATIONS", open_at_once)
        patch.setattr(instrument, "MAX_UNREAD", 1)
        found, unheard = (asyncio.run(ask(TracedSource(Looking(), hub))) for hub in (heard, Hub()))
    assert [error for error, _ in unheard] == [error for error, _ in found]
    compared = [(ours, theirs) for (_, ours), (_, theirs) in zip(unheard, found, strict=True)]
    assert all(ours == theirs for ours, theirs in compared if ours)
