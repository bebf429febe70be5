"""`--fault` of `offbook serve` and `offbook replay`, with the SDKs of the providers as clients."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from offbook.checks import find_outcomes
from offbook.sources.cassette import Recording
from offbook.sources.playbook import Playbook, say, when
from offbook.sources.server import Server
from offbook.trace import FAULT, Trace
from tests.forked import forked_command
from tests.streaming_agent import streaming_agent
from tests.surfaces.conftest import Offbook

TEXT = "Hello there, my dear good old friend."
PLAYBOOK = f"- when: Hi\n  do:\n    - say: {TEXT}\n"

Ask = Callable[[str], str | None]


@pytest.fixture(autouse=True)
def no_retry_delay(monkeypatch: pytest.MonkeyPatch):
    for sdk in ("openai", "anthropic"):
        monkeypatch.setattr(f"{sdk}._base_client.INITIAL_RETRY_DELAY", 0.001)
        monkeypatch.setattr(f"{sdk}._base_client.MAX_RETRY_DELAY", 0.002)


class Served:
    """A server in another process; `output` is what it printed on stderr, after its end."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.output = ""


@contextmanager
def serve(folder: Path, *options: str) -> Generator[Served]:
    """Run `offbook serve` with a trace in the folder, and interrupt it at the end."""
    (folder / "hi.yaml").write_text(PLAYBOOK)
    command = ("-m", "offbook", "serve", "hi.yaml", "--port", "0", "--trace", "t.jsonl")
    with subprocess.Popen(
        forked_command(*command, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
        cwd=folder,
    ) as process:
        try:
            assert process.stdout is not None
            while (
                found := re.match(r"export OPENAI_BASE_URL=(.*)/v1", process.stdout.readline())
            ) is None:
                assert process.poll() is None
            served = Served(found[1])
            yield served
            process.send_signal(signal.SIGINT)
            served.output = process.communicate(timeout=300)[1]
            assert process.returncode == 0, served.output
        finally:
            process.kill()


def ask_openai(base: str) -> str | None:
    with openai.OpenAI(base_url=f"{base}/v1", api_key="x", timeout=300) as client:
        reply = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}]
        )
    return reply.choices[0].message.content


def ask_anthropic(base: str) -> str | None:
    with (
        anthropic.Anthropic(base_url=base, api_key="x", timeout=300) as client,
        client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as stream,
    ):
        return stream.get_final_text()


@pytest.mark.parametrize(
    "ask, fault",
    [(ask_openai, "status:503@1"), (ask_anthropic, "rate_limit@1"), (ask_anthropic, "slow@1")],
)
def test_a_client_of_a_served_model_gets_over_a_fault(tmp_path: Path, ask: Ask, fault: str):
    with serve(tmp_path, "--fault", fault) as served:
        assert ask(served.base) == TEXT
    (found,) = find_outcomes(Trace(tmp_path / "t.jsonl"))
    kind = fault.partition("@")[0].partition(":")[0]
    # What the client did with a slow reply, only the client knows.
    expected = "unknown" if kind == "slow" else "retried"
    assert (found.kind, found.outcome) == (kind, expected)
    assert f"1 fault: 1 {expected} (seed 0)" in served.output


def test_a_served_model_that_resets_every_connection_is_an_error_of_the_client(tmp_path: Path):
    with (
        serve(tmp_path, "--fault", "reset", "--fault-rate", "1") as served,
        pytest.raises(openai.APIConnectionError),
    ):
        ask_openai(served.base)
    faults = [event for event in Trace(tmp_path / "t.jsonl") if event.event == FAULT]
    assert [event.data["kind"] for event in faults] == ["reset"] * 3  # two retries


def test_the_seed_repeats_the_faults_of_a_served_model(tmp_path: Path):
    def faults(name: str) -> list[dict[str, Any]]:
        folder = tmp_path / name
        folder.mkdir()
        options = ("--fault", "status", "--fault", "rate_limit", "--fault-rate", "0.8")
        with serve(folder, *options, "--fault-seed", "3") as served:
            for run in ("", "/s/other"):  # each run has the faults from the beginning
                with openai.OpenAI(base_url=f"{served.base}{run}/v1", api_key="x") as client:
                    client.with_options(max_retries=20).chat.completions.create(
                        model="m", messages=[{"role": "user", "content": "Hi"}]
                    )
        return [event.data for event in Trace(folder / "t.jsonl") if event.event == FAULT]

    first = faults("first")
    half = len(first) // 2
    assert half
    assert first[:half] == first[half:]
    assert faults("second") == first


# --- Replay


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    """A recorded stream, with an agent in the same folder."""
    (tmp_path / "agent.py").write_text(streaming_agent("Hi"))
    source = Playbook()
    source.load(when("Hi", [say(TEXT)]))
    path = tmp_path / "cassette.yaml"
    with Server() as server, Recording(source, path) as recording:
        base = server.mount(recording).openai
        with openai.OpenAI(base_url=base, api_key="x") as client:
            list(
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
                )
            )
    return path


@pytest.mark.parametrize(
    "faults, argument, code, expected",
    [
        (["rate_limit@1", "status:529@2"], "", 0, "2 faults: 2 retried"),
        (["reset@1"], "", 1, "reset at request 1: reported"),
        (["reset@1"], "--quiet", 1, "reset at request 1: swallowed, the answer is the beginning"),
        (["truncate@1"], "", 1, "truncate at request 1: swallowed"),
        (["reset@5"], "", 1, "never injected: reset@5"),
        (["duplicate"], "", 1, "no fault was injected: the seed 0 with the rate 0.3 chose no"),
    ],
)
def test_a_replayed_command_has_faults(
    cassette: Path,
    offbook_command: Offbook,
    faults: list[str],
    argument: str,
    code: int,
    expected: str,
):
    options = [word for fault in faults for word in ("--fault", fault)]
    trace = cassette.with_name("t.jsonl")
    result = offbook_command(
        "replay",
        cassette,
        *options,
        "--trace",
        trace,
        "--",
        *forked_command(
            cassette.with_name("agent.py"), *filter(None, [argument]), imports=["openai"]
        ),
    )
    assert result.code == code, result.err
    assert expected in result.err
    injected = [event for event in Trace(trace) if event.event == FAULT]
    assert len(injected) == (0 if "injected" in expected else len(faults))
