"""Real models: limits of requests and tokens, retries, a cost limit; against a served model."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from offbook import Server
from offbook.errors import ModelError, RunError
from offbook.evals import RunOptions, run_pack
from offbook.exchange.messages import History, Text, user
from offbook.exchange.model import Reply, Request, Usage
from offbook.sources.live import FIRST_DELAY, LimitedSource, Live, LiveLimits
from tests.evals.conftest import RunPack

ANSWER = json.dumps({"reasoning": "because", "score": 5})


class Provider:
    """A served model: it fails as often as `errors` says, and notes the times of its requests."""

    def __init__(self) -> None:
        self.errors: list[ModelError | RunError] = []
        self.times: list[float] = []

    async def reply(self, request: Request, /) -> Reply:
        self.times.append(time.monotonic())
        if self.errors:
            raise self.errors.pop(0)
        return Reply((Text(ANSWER),), usage=Usage(60, 40), model=request.model)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    source = Provider()
    with Server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.mount(source, run='').url}/v1")
        yield source


def busy(status: int = 429, retry_after: float | None = 0.01) -> ModelError:
    return ModelError("busy", status=status, retry_after=retry_after)


async def ask(limits: LiveLimits) -> Reply:
    request = Request(History([user("Hi")]), model="m", metadata={"dialect": "openai-chat"})
    return await LimitedSource(Live(), limits).reply(request)


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_request_that_failed_at_the_provider_is_repeated(provider: Provider, status: int):
    provider.errors = [busy(status), busy(status)]
    assert (await ask(LiveLimits(retries=2))).text == ANSWER
    assert len(provider.times) == 3


@pytest.mark.parametrize("retry_after, least", [(0.3, 0.3), (None, FIRST_DELAY)])
async def test_the_wait_is_what_the_provider_says(retry_after: float | None, least: float):
    provider = Provider()
    provider.errors = [busy(retry_after=retry_after)]
    await LimitedSource(provider, LiveLimits(retries=1)).reply(Request())
    assert provider.times[1] - provider.times[0] >= least


@pytest.mark.parametrize("error, requests", [(busy(), 2), (busy(400), 1)])
async def test_the_last_error_and_one_of_the_request_are_raised(
    provider: Provider, error: ModelError, requests: int
):
    provider.errors = [error, busy(), busy()]
    with pytest.raises(ModelError, match="busy"):
        await ask(LiveLimits(retries=1))
    assert len(provider.times) == requests


@pytest.mark.parametrize(
    "cause, requests",
    [(ConnectionResetError(), 2), (BrokenPipeError(), 2), (ConnectionRefusedError(), 1)],
)
async def test_a_broken_connection_is_tried_again_and_a_refused_one_is_not(
    cause: OSError, requests: int
):
    provider = Provider()
    error = RunError("cannot connect")
    error.__cause__ = cause
    provider.errors = [error]
    with suppress(RunError):
        await LimitedSource(provider, LiveLimits(retries=1)).reply(Request())
    assert len(provider.times) == requests


async def test_requests_under_way_count_their_tokens(tmp_path: Path):
    limits = LiveLimits(None, 150, file=str(tmp_path / "pace.json"))
    limited, held = LimitedSource(provider := Provider(), limits), asyncio.Event()
    await limited.reply(Request())  # 100 tokens
    reply = provider.reply

    async def hold(request: Request, /) -> Reply:
        held.set()
        await asyncio.Event().wait()
        return await reply(request)

    provider.reply = hold
    second = asyncio.create_task(limited.reply(Request()))
    await held.wait()
    sent = json.loads((tmp_path / "pace.json").read_text())
    assert limited._seconds_to_wait(sent, time.time()) > 0  # pyright: ignore[reportPrivateUsage]
    second.cancel()


# the limits, the times and tokens of requests of the last minute -> the seconds to wait
PACES: dict[str, tuple[LiveLimits, list[list[float]], float]] = {
    "no request yet": (LiveLimits(1), [], 0),
    "as many as allowed": (LiveLimits(2), [[50, 0], [90, 0]], 10),
    "more than a minute ago": (LiveLimits(1), [[30, 0]], 0),
    "tokens left": (LiveLimits(None, 100), [[50, 99]], 0),
    "no tokens left": (LiveLimits(None, 100), [[50, 60], [70, 60]], 10),
    "no tokens left for longer": (LiveLimits(None, 100), [[50, 10], [70, 150]], 30),
    "both": (LiveLimits(1, 100), [[50, 0], [70, 150]], 30),
}


@pytest.mark.parametrize("name", PACES)
def test_a_request_waits_until_the_last_minute_has_room(name: str):
    limits, sent, seconds = PACES[name]
    source = LimitedSource(Provider(), limits)
    assert source._seconds_to_wait(sent, 100.0) == seconds  # pyright: ignore[reportPrivateUsage]


async def test_processes_share_the_limits_by_a_file(provider: Provider, tmp_path: Path):
    limits = LiveLimits(10, 1000, file=str(tmp_path / "pace.json"))
    for _ in range(3):
        await ask(limits)
    sent = json.loads((tmp_path / "pace.json").read_text())
    assert [tokens for _, tokens in sent] == [100, 100, 100]


def pack(**fields: Any) -> dict[str, Any]:
    judge = {"source": "openai-chat", "model": "m"}
    rubric = {"id": "good", "kind": "llm-judge", "prompt": "Is it good?", "judge": judge}
    cases = [{"id": f"c{n}", "run": "run.json", "rubrics": ["good"]} for n in range(4)]
    prices = {"m": {"input": 10_000, "output": 10_000}}  # 1 USD for each request
    return {"rubrics": [rubric], "cases": cases, "prices": prices, **fields}


def test_judges_of_a_run_are_retried(run_files: RunPack, provider: Provider):
    provider.errors = [busy(), busy(503)]
    run = run_files(pack(), live=True, retries=2)
    assert run.summary.passed_gate
    assert len(provider.times) == 6


def test_only_the_errors_of_a_provider_run_again(
    run_files: RunPack, provider: Provider, tmp_path: Path
):
    provider.errors = [busy()]
    first = run_files(pack(), live=True, retries=0, output="out")
    assert [case.status for case in first.cases] == ["error", "pass", "pass", "pass"]
    assert first.cases[0].failures == ("good: no answer of the judge: busy (429 rate_limit)",)
    options = RunOptions(output="out", live=True, resume=True, retry_errors=True)
    second = run_pack([tmp_path / "pack.json"], options)
    assert second.summary.passed_gate
    assert len(provider.times) == 5


def test_a_cost_limit_with_a_model_without_a_price_stops_the_run(
    run_files: RunPack, provider: Provider
):
    run = run_files(pack(prices={}), live=True, cost_limit=2.0)
    assert run.summary.stopped == "cost limit: no price of m; add it to [prices]"
    assert not run.summary.passed_gate
    assert len(provider.times) <= 2  # one more may be under way


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_judge_of_subjects_is_calibrated_once_for_a_run(
    run_files: RunPack, provider: Provider, jobs: int
):
    content = pack()
    content["rubrics"][0]["judge"]["min_agreement"] = 0.0
    labels = [{"input": "a", "output": "b", "score": score} for score in (0.0, 1.0)]
    content["rubrics"][0]["calibration"] = labels
    for case in content["cases"]:
        del case["run"]
        case |= {"subject": "echo.py:echo", "input": "x"}
    run = run_files(content, {"echo.py": "def echo(v): return v\n"}, live=True, jobs=jobs)
    assert run.summary.passed_gate
    assert len(provider.times) == len(labels) + len(content["cases"])


def test_a_cost_limit_stops_the_run(run_files: RunPack, provider: Provider):
    run = run_files(pack(), live=True, cost_limit=2.0)
    assert run.summary.stopped == "cost limit of 2 USD reached"
    assert run.summary.cost_usd == 2.0
    assert not run.summary.passed_gate
    assert len(provider.times) <= 3  # one more may be under way
