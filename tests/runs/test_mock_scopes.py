"""Scopes of mocks replace the outer ones, end on any exit, and are isolated."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from offbook import Mocks, session
from offbook.errors import (
    CheckFailed,
    HostError,
    ModelError,
    ScriptMismatch,
    UnmockedCall,
    UsageError,
)
from offbook.runs import ScopeManager
from offbook.testing import (
    assert_host_called,
    clear_host_mocks,
    clear_llm_mocks,
    host_call,
    host_call_count,
    host_calls,
    llm_call,
    llm_call_count,
    llm_calls,
    llm_mock,
    mock_host_result,
    with_host_mocks,
    with_llm_mocks,
    with_mocks,
)


def clock(result: object, **more: Any) -> dict[str, Any]:
    return {"capability": "clock", "operation": "now_ms", "result": result, **more}


def now() -> Any:
    return host_call("clock.now_ms")


def ask(prompt: str) -> str:
    """Send a request as the SDK of a provider does."""
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    answer = httpx.post("https://api.openai.com/v1/chat/completions", json=body)
    return answer.json()["choices"][0]["message"]["content"]


def test_an_inner_scope_sees_only_its_own_mocks_and_calls():
    with with_host_mocks([clock("outer")]):
        assert now() == "outer"
        with with_host_mocks([clock("inner")]):
            assert now() == "inner"
            assert host_call_count() == 1
        assert now() == "outer"
        assert host_call_count() == 2


def test_an_outer_mock_is_invisible_inside():
    with with_host_mocks([clock("outer")], allow_unused_mocks=True):
        with with_host_mocks():
            with pytest.raises(UnmockedCall):
                now()
            clear_host_mocks()
        assert host_calls() == []


def test_the_error_of_the_body_is_raised_unchanged_and_the_outer_scope_is_intact():
    error = HostError("of the body")

    def body() -> None:
        now()
        raise error

    with with_host_mocks([clock("outer")]):
        assert now() == "outer"
        with pytest.raises(HostError) as caught:
            with_host_mocks([clock("inner"), clock("unused")], body)
        assert caught.value is error
        assert now() == "outer"
        assert host_call_count() == 2


def test_a_malformed_entry_leaves_the_outer_scope_intact():
    with with_host_mocks([clock("outer")]):
        with pytest.raises(UsageError, match="with_host_mocks, mock 2"):
            with_host_mocks([clock(1), {"capability": "clock"}], now)
        assert now() == "outer"


def test_clear_applies_to_the_current_scope_only():
    with with_host_mocks([clock("outer")]):
        with with_host_mocks([clock("inner")]):
            clear_host_mocks()
        assert now() == "outer"


def test_a_body_returns_its_value():
    assert with_host_mocks([clock(7)], now) == 7


async def test_an_async_body_is_awaited_in_the_scope():
    async def body() -> Any:
        await asyncio.sleep(0)
        return now()

    assert await with_host_mocks([clock(7)], body) == 7


@with_host_mocks([clock("a")])
def test_a_decorated_function_runs_in_the_scope():
    assert now() == "a"


@with_host_mocks([clock("a")])
async def test_a_decorated_coroutine_runs_in_the_scope():
    await asyncio.sleep(0)
    assert now() == "a"


def test_each_call_of_a_decorated_function_has_a_new_scope():
    @with_host_mocks([clock("a", times=1)])
    def once() -> Any:
        return now()

    assert [once(), once()] == ["a", "a"]


def test_a_manager_can_be_nested_in_itself():
    manager = with_host_mocks([clock("a")])
    with manager:
        now()
        with manager:
            assert host_call_count() == 0
            now()


def test_an_unused_mock_fails_at_the_end():
    with pytest.raises(CheckFailed, match=r"never used: host mock clock.now_ms with"):
        with_host_mocks([clock(1, params={"zone": "utc"})], lambda: None)


def test_an_unused_answer_of_a_list_fails_at_the_end():
    entry = {"capability": "clock", "operation": "now_ms", "results": [1, 2]}
    with pytest.raises(CheckFailed, match="never used"):
        with_host_mocks([entry], now)


def test_the_end_of_a_scope_that_is_not_open_is_an_error():
    manager: ScopeManager[Any] = with_host_mocks()
    with pytest.raises(UsageError, match="not open"):
        manager.__exit__(None, None, None)


def test_a_thread_that_is_started_in_a_scope_is_in_it():
    seen: list[Any] = []
    with with_host_mocks([clock("a")]):
        thread = Thread(target=lambda: seen.append(now()))
        thread.start()
        thread.join()
        assert_host_called("clock", "now_ms")
    assert seen == ["a"]


def test_a_thread_outside_of_the_scope_does_not_see_it():
    seen: list[Any] = []

    def body() -> None:
        with with_host_mocks([clock("thread")]):
            seen.append(now())

    thread = Thread(target=body)
    with with_host_mocks([clock("a")], allow_unused_mocks=True):
        thread.start()
        thread.join()
        assert host_calls() == []
    assert seen == ["thread"]


# --- LLM mocks


def test_lines_answer_http_clients_without_a_network():
    with with_llm_mocks([{"text": "first"}, {"match": "*two*", "text": "second"}]):
        assert [ask("one"), ask("two")] == ["first", "second"]
        assert llm_call_count() == 2
        assert [request.prompt for request in llm_calls()] == ["one", "two"]


def test_a_mock_can_be_added_in_the_scope():
    with with_llm_mocks():
        llm_mock({"text": "The answer is 42"})
        assert llm_call("What is the answer?").text == "The answer is 42"


def test_a_session_without_a_source_asks_the_scope():
    with with_llm_mocks([{"text": "hello"}]), session() as rehearsal:
        assert rehearsal.run("Hi").output == "hello"


def test_lines_of_a_scope_have_all_fields_of_a_mock():
    lines = [
        {"match": "*plan*", "text": "first", "consume_match": True},
        {"match": "*plan*", "text": "again"},
        {"match": "*pay*", "error": {"category": "rate_limit", "message": "slow down"}},
    ]

    def body() -> list[str]:
        with pytest.raises(ModelError, match="slow down"):
            llm_call("pay")
        return [llm_call("a plan").text for _ in range(3)]

    assert with_llm_mocks(lines, body) == ["first", "again", "again"]


def test_a_request_without_a_line_is_logged_and_fails():
    with with_llm_mocks([{"match": "*refund*", "text": "ok"}], allow_unused_mocks=True):
        with pytest.raises(ScriptMismatch, match='no mock matched prompt: "hi') as caught:
            llm_call("hi")
        assert "nearest: line 1" in str(caught.value)
        assert llm_call_count() == 1
        clear_llm_mocks()


def test_a_miss_that_the_code_swallows_fails_the_scope():
    def swallow() -> None:
        with pytest.raises(KeyError):
            ask("hi")

    with pytest.raises(ScriptMismatch, match="no mock matched"):
        with_llm_mocks([{"match": "*other*", "text": "x"}], swallow)


def test_an_empty_scope_refuses_every_request():
    with pytest.raises(ScriptMismatch, match="the scope has no line"):
        with_mocks({}, lambda: llm_call("hi"))


def test_an_unused_line_fails_at_the_end():
    with pytest.raises(CheckFailed, match="never used: LLM mock line 2"):
        with_llm_mocks([{"text": "a"}, {"text": "b"}], lambda: llm_call("hi"))


@pytest.mark.parametrize("place", ["code", "file"])
def test_an_unused_line_of_a_source_fails_the_rehearsal(tmp_path: Path, place: str):
    lines = [{"text": "a"}, {"match": "*never*", "text": "b"}]
    file = tmp_path / "mocks.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))

    def run(**options: Any) -> None:
        source = Mocks(file if place == "file" else lines)
        with session(source=source, **options) as rehearsal:
            rehearsal.run("Hi")

    with pytest.raises(CheckFailed, match="never used: LLM mock line 2"):
        run()
    run(allow_unused_mocks=True)


def test_both_scopes_are_opened_together():
    def body() -> tuple[Any, str]:
        return now(), llm_call("hi").text

    config = {"host_mocks": [clock(7)], "llm_mocks": [{"text": "agreed"}]}
    assert with_mocks(config, body) == (7, "agreed")


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "an unknown key": (lambda: with_mocks({"host_mock": []}), "did you mean 'host_mocks'"),
    "no dict": (lambda: with_mocks([]), "with_mocks: expected a mapping, got a list"),  # pyright: ignore[reportArgumentType] - wrong on purpose
    "no list": (lambda: with_llm_mocks("x"), "the mocks must be a list, got str"),  # pyright: ignore[reportArgumentType] - wrong on purpose
    "an unknown field": (lambda: with_llm_mocks([{"txt": "a"}], now), "did you mean 'text'"),
    "no scope": (lambda: llm_mock({"text": "a"}), "there is no scope of LLM mocks"),
}


@pytest.mark.parametrize("wrong, message", BAD.values(), ids=BAD)
def test_bad_input_is_refused(wrong: Callable[[], object], message: str):
    with pytest.raises(UsageError) as caught:
        wrong()
    assert message in str(caught.value)


# --- Isolation

TASKS = 300


async def test_hundreds_of_concurrent_tasks_never_see_the_mocks_or_calls_of_each_other():
    async def work(number: int) -> None:
        config = {"host_mocks": [clock(number)], "llm_mocks": [{"text": f"reply {number}"}]}
        with with_mocks(config):
            for _ in range(3):
                assert now() == number
                await asyncio.sleep(0)
            mock_host_result("clock", "now", number)
            await asyncio.sleep(0)
            # In another thread, as blocking code of an agent is called.
            if number % 100 == 0:
                assert await asyncio.to_thread(host_call, "clock.now") == number
            else:
                assert host_call("clock.now") == number
            assert llm_call(f"prompt {number}").text == f"reply {number}"
            await asyncio.sleep(0)
            assert host_call_count() == 4
            assert [request.prompt for request in llm_calls()] == [f"prompt {number}"]

    await asyncio.gather(*map(work, range(TASKS)))
