"""Faults in runs: what real clients get, and what the run says about the agent.

Each verdict has a broken agent that it must catch.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from offbook import Command, Playbook, Server, Trace, call, drive, say, session, when
from offbook.checks import find_outcomes, judge_faults
from offbook.errors import CheckFailed, InjectedFault, OffbookWarning, UsageError
from offbook.sources.mocks import Mocks
from offbook.trace import FAULT
from tests.forked import forked_command

TEXT = "Hello there, my dear good old friend."
SCRIPT = when("Hi", [say(TEXT)])


@pytest.fixture(autouse=True)
def no_retry_delay(monkeypatch: pytest.MonkeyPatch):
    """The SDKs wait half a second before they try again after a broken connection."""
    for sdk in ("openai", "anthropic"):
        monkeypatch.setattr(f"{sdk}._base_client.INITIAL_RETRY_DELAY", 0.001)
        monkeypatch.setattr(f"{sdk}._base_client.MAX_RETRY_DELAY", 0.002)


def openai_plain(prompt: str) -> str | None:
    with openai.OpenAI(api_key="none", timeout=300) as client:
        reply = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}]
        )
    return reply.choices[0].message.content


def openai_stream(prompt: str) -> str:
    with openai.OpenAI(api_key="none", timeout=300) as client:
        chunks = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}], stream=True
        )
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


async def anthropic_stream(prompt: str) -> str:
    async with (
        anthropic.AsyncAnthropic(api_key="none", timeout=300) as client,
        client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": prompt}]
        ) as stream,
    ):
        return await stream.get_final_text()


Agent = Callable[[str], Any]


def outcome(agent: Agent, kind: str, *, serve: bool) -> tuple[str, str]:
    plan = {"kinds": [f"{kind}@1"], "delay": 0.01, "hold": 0.05}
    with drive(agent, faults=plan, serve=serve, auto_assert=False) as rehearsal:
        run = rehearsal.run(SCRIPT)
    (found,) = run.faults
    assert found.kind == kind
    return found.outcome, found.evidence


# What the SDKs of these agents do: they send a request again, unless a stream has begun.
OUTCOMES = {
    ("status", openai_plain): "retried",
    ("rate_limit", openai_plain): "retried",
    ("timeout", openai_plain): "retried",
    ("stall", openai_plain): "retried",
    ("reset", openai_plain): "retried",
    ("truncate", openai_plain): "reported",
    ("slow", openai_plain): "survived",
    ("content_type", openai_plain): "reported",
    ("status", openai_stream): "retried",
    ("stall", openai_stream): "reported",
    ("reset", openai_stream): "reported",
    ("truncate", openai_stream): "swallowed",
    ("duplicate", openai_stream): "swallowed",
    ("slow", openai_stream): "survived",
    ("content_type", openai_stream): "swallowed",
    ("rate_limit", anthropic_stream): "retried",
    ("timeout", anthropic_stream): "retried",
    ("stall", anthropic_stream): "reported",
    ("reset", anthropic_stream): "reported",
    ("slow", anthropic_stream): "survived",
}


@pytest.mark.parametrize("way", ["in process", "server"])
@pytest.mark.parametrize(
    "kind, agent, expected",
    [(kind, agent, expected) for (kind, agent), expected in OUTCOMES.items()],
    ids=[f"{kind} {agent.__name__}" for kind, agent in OUTCOMES],
)
def test_a_real_client_gets_each_fault_and_the_run_says_what_it_did(
    kind: str, agent: Agent, expected: str, way: str
):
    assert outcome(agent, kind, serve=way == "server")[0] == expected


def test_a_reset_before_the_response_is_a_connection_error_in_the_sdk():
    def agent(prompt: str) -> str:
        client = openai.OpenAI(api_key="none", max_retries=0)
        with client, pytest.raises(openai.APIConnectionError):
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": prompt}]
            )
        return "the connection failed"

    with drive(agent, faults=["reset@1"]) as rehearsal:
        assert rehearsal.run(SCRIPT).output == "the connection failed"


def test_a_rate_limit_has_the_header_retry_after():
    seen: list[str | None] = []

    def agent(prompt: str) -> str | None:
        with openai.OpenAI(api_key="none", max_retries=0) as client:
            try:
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": prompt}]
                )
            except openai.RateLimitError as error:
                seen.append(error.response.headers["retry-after"])
        return openai_plain(prompt)

    with drive(agent, faults=["rate_limit@1"]) as rehearsal:
        rehearsal.run(SCRIPT)
    assert seen == ["2"]


# --- Broken agents that the verdict must catch


def swallow(prompt: str) -> str:
    """Return as much of the stream as arrives."""
    text = ""
    with openai.OpenAI(api_key="none", timeout=300) as client, suppress(openai.OpenAIError):
        for chunk in client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}], stream=True
        ):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    return text


def go_on_with_a_part(prompt: str) -> str | None:
    text = swallow(prompt)
    with openai.OpenAI(api_key="none") as client:
        reply = client.chat.completions.create(
            model="m",
            messages=[
                {"role": "user", "content": prompt},
                {"role": "assistant", "content": text},
                {"role": "user", "content": "Next"},
            ],
        )
    return reply.choices[0].message.content


def retry_for_ever(prompt: str) -> str | None:
    with openai.OpenAI(api_key="none", max_retries=0) as client:
        for _ in range(25):
            try:
                reply = client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": prompt}]
                )
            except openai.OpenAIError:
                continue
            return reply.choices[0].message.content
    return None


def test_an_agent_that_swallows_an_error_fails():
    with (
        pytest.raises(CheckFailed, match=r"swallowed, the answer is the beginning of the reply"),
        drive(swallow, faults=["reset@1"]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_an_agent_with_an_empty_answer_has_swallowed_the_error():
    with (
        pytest.raises(CheckFailed, match=r"swallowed, the run ended .* with an empty answer"),
        drive(swallow, faults=["status@1", "status@2", "status@3"]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_an_agent_that_goes_on_with_a_part_of_a_reply_has_swallowed_the_error():
    with (
        pytest.raises(CheckFailed, match="swallowed, the agent went on with a damaged reply"),
        drive(go_on_with_a_part, faults=["reset@1"]) as rehearsal,
    ):
        rehearsal.run(SCRIPT, when("Next", [say("Bye.")]))


def test_an_agent_that_retries_without_end_fails():
    with (
        pytest.raises(CheckFailed, match="looped, the same request was sent again"),
        drive(retry_for_ever, faults={"kinds": ["status"], "rate": 1}) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_an_agent_that_retries_a_few_times_passes():
    with drive(retry_for_ever, faults=["status@1", "reset@2", "timeout@3"]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.output == TEXT
    assert [found.outcome for found in run.faults] == ["retried"] * 3


def answer_after_an_error(answer: str) -> Agent:
    def agent(prompt: str) -> str:
        try:
            return openai_stream(prompt)
        except openai.OpenAIError as error:
            return answer.format(error=repr(error))

    return agent


def test_an_agent_that_quotes_the_error_has_reported_it():
    with drive(answer_after_an_error("No answer: {error}"), faults=["stall@1"]) as rehearsal:
        (found,) = rehearsal.run(SCRIPT).faults
    assert found.outcome == "reported"
    assert "the answer quotes the error" in found.evidence


@pytest.mark.parametrize(
    "answer", ["All done.", "Refunded without an error, no problem.", "Das Modell antwortet nicht."]
)
def test_what_an_answer_in_other_words_means_is_unknown_and_no_pass(answer: str):
    with drive(answer_after_an_error(answer), faults=["reset@1"]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    (found,) = run.faults
    assert (found.outcome, answer in found.evidence) == ("unknown", True)
    assert judge_faults(run.events.all).status == "no_data"


def test_the_answer_to_an_earlier_prompt_is_unknown():
    script = (SCRIPT, when("Next", [say("Bye.")]))
    with drive(answer_after_an_error("All done."), faults=["reset@1"]) as rehearsal:
        (found,) = rehearsal.run(*script).faults
    assert found.outcome == "unknown"


def test_an_answer_around_the_whole_reply_has_survived():
    def agent(prompt: str) -> str:
        return f"The model said: {openai_stream(prompt)}"

    with drive(agent, faults={"kinds": ["slow@1"], "delay": 0.01}) as rehearsal:
        (found,) = rehearsal.run(SCRIPT).faults
    assert (found.outcome, found.evidence) == ("survived", "the answer has the whole reply")


def test_an_agent_that_asks_another_way_has_survived():
    def agent(prompt: str) -> str | None:
        with openai.OpenAI(api_key="none", max_retries=0) as client:
            for text in (prompt, f"{prompt}, in other words"):
                try:
                    reply = client.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": text}]
                    )
                except openai.OpenAIError:
                    continue
                return reply.choices[0].message.content
        return None

    with drive(agent, faults=["status:503@1"]) as rehearsal:
        (found,) = rehearsal.run(SCRIPT).faults
    assert (found.outcome, found.evidence) == ("survived", "the agent went on with another request")


# --- Retries and the script


def test_a_retry_after_a_broken_stream_takes_no_further_step():
    def agent(prompt: str) -> list[str]:
        answers: list[str] = []
        for text in (prompt, "Next"):
            try:
                answers.append(openai_stream(text))
            except openai.OpenAIError:
                answers.append(openai_stream(text))
        return answers

    script = (when("Hi", [say(TEXT)]), when("Next", [say("Second.")]))
    with drive(agent, faults=["reset@1", "status@3"]) as rehearsal:
        run = rehearsal.run(*script)
    assert run.output == [TEXT, "Second."]


def test_a_retry_can_have_a_fault_of_its_own():
    def agent(prompt: str) -> str:
        for _ in range(3):
            try:
                return openai_stream(prompt)
            except openai.OpenAIError:
                continue
        return "failed"

    with drive(agent, faults=["reset@1", "stall@2"]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.output == TEXT
    assert [(found.kind, found.outcome) for found in run.faults] == [
        ("reset", "retried"),
        ("stall", "retried"),
    ]


# --- Sessions, tools and the host


def test_a_session_retries_a_fault_of_its_model():
    with session(faults=["timeout@1", "reset@3"], settings={"retries": 2}) as rehearsal:
        run = rehearsal.run(
            when("Go", [call("bash", {"command": "echo hi"}), say("Done.")]),
        )
    assert [found.outcome for found in run.faults] == ["retried", "retried"]
    assert run.output == "Done."


def test_a_failing_tool_is_an_error_result_for_the_model():
    with session(faults=["tool_error:bash@1"]) as rehearsal:
        run = rehearsal.run(when("Go", [call("bash", {"command": "echo hi"}), say("Done.")]))
    (found,) = run.faults
    assert run.results("bash")[0].is_error
    assert (found.outcome, found.name) == ("reported", "bash")


def test_an_extension_that_hides_the_error_of_a_tool_fails():
    def hide(api: Any) -> None:
        @api.on("tool_result")
        def hide_error(event: Any, context: Any) -> dict[str, Any]:
            return {"content": "ok", "is_error": False}

    with (
        pytest.raises(CheckFailed, match=r"tool_error at tool call 1 \(bash\): swallowed"),
        session(faults=["tool_error@1"], extensions=[hide]) as rehearsal,
    ):
        rehearsal.run(when("Go", [call("bash", {"command": "echo hi"}), say("Done.")]))


def test_a_slow_tool_is_survived():
    with session(faults={"kinds": ["tool_slow@1"], "delay": 0.001}) as rehearsal:
        run = rehearsal.run(when("Go", [call("bash", {"command": "echo hi"}), say("Done.")]))
    assert run.faults[0].outcome == "survived"


def test_a_tool_of_a_framework_can_fail():
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("m", provider=OpenAIProvider(api_key="none"))
    agent: Any = PydanticAgent(model)

    @agent.tool_plain
    async def look(what: str) -> str:
        return what

    with drive(agent, faults=["tool_error:look@1"]) as rehearsal:
        with pytest.raises(InjectedFault):
            rehearsal.run(when("Go", [call("look", {"what": "x"}), say("Done.")]))
        run = rehearsal.latest_run
    assert run is not None
    (found,) = run.faults
    assert found.outcome == "reported"
    assert "InjectedFault" in found.evidence


def test_an_agent_that_a_fault_ended_fails_unless_the_test_expects_it():
    def agent(prompt: str) -> None:
        openai.OpenAI(api_key="none", max_retries=0).chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}]
        )

    with drive(agent, faults=["status:500@1"]) as rehearsal:
        with pytest.raises(openai.InternalServerError) as caught:
            rehearsal.run(when("Go", [say("Done.")]))
        run = rehearsal.latest_run
    assert "an injected fault ended the agent" in caught.value.__notes__[-1]
    assert run is not None
    assert [fault.outcome for fault in run.faults] == ["reported"]


@pytest.mark.parametrize(
    "handles, expected", [("retry", "retried"), ("tell", "reported"), ("hide", "unknown")]
)
def test_a_failing_host_call_is_seen_as_far_as_the_trace_shows_it(handles: str, expected: str):
    def extension(api: Any) -> None:
        def read(params: dict[str, Any], context: Any) -> str:
            try:
                return str(context.host.call("workspace.read_text", {"path": "a"}))
            except InjectedFault as error:
                if handles == "retry":
                    return str(context.host.call("workspace.read_text", {"path": "a"}))
                return str(error) if handles == "tell" else "nothing"

        api.register_tool("look", read, description="", parameters={"type": "object"})

    mock = {"capability": "workspace", "operation": "read_text", "result": "text"}
    with session(
        faults=["host_error@1"], extensions=[extension], mock_host=[mock], allow_unused_mocks=True
    ) as rehearsal:
        (found,) = rehearsal.run(when("Go", [call("look"), say("Done.")])).faults
    assert (found.place, found.outcome) == ("host", expected)


def test_a_slow_host_call_is_delayed_and_has_its_result(monkeypatch: pytest.MonkeyPatch):
    delays: list[float] = []
    monkeypatch.setattr("offbook.determinism.faults.time.sleep", delays.append)

    def extension(api: Any) -> None:
        def read(params: dict[str, Any], context: Any) -> str:
            return str(context.host.call("workspace.read_text", {"path": "a"}))

        api.register_tool("look", read, description="", parameters={"type": "object"})

    mock = {"capability": "workspace", "operation": "read_text", "result": "the text"}
    plan = {"kinds": ["host_slow:workspace.read_text@2"], "delay": 7}
    with session(faults=plan, extensions=[extension], mock_host=[mock]) as rehearsal:
        run = rehearsal.run(when("Go", [call("look"), call("look"), say("Done.")]))
    (found,) = run.faults
    assert (delays, found.kind, found.number) == ([7], "host_slow", 2)
    assert (found.outcome, found.name) == ("survived", "workspace.read_text")
    assert [result.text for result in run.results("look")] == ["the text"] * 2


def test_an_agent_that_gives_up_on_a_slow_host_call_has_reported_it():
    def extension(api: Any) -> None:
        def read(params: dict[str, Any], context: Any) -> str:
            context.host.call("workspace.read_text", {"path": "a"})
            raise TimeoutError("the host took too long")

        api.register_tool("look", read, description="", parameters={"type": "object"})

    mock = {"capability": "workspace", "operation": "read_text", "result": "the text"}
    plan = {"kinds": ["host_slow@1"], "delay": 0.001}
    with session(
        faults=plan, extensions=[extension], mock_host=[mock], propagate_errors=False
    ) as rehearsal:
        run = rehearsal.run(when("Go", [call("look"), say("Done.")]))
    assert run.faults[0].outcome == "reported"


# --- No vacuous pass

NEVER = {"seed": 1, "rate": 0.000001}


def test_an_entry_that_is_never_reached_fails_the_rehearsal():
    with (
        pytest.raises(CheckFailed, match="never injected: reset@5"),
        drive(openai_plain, faults=["reset@5"]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_a_run_without_any_fault_has_no_data():
    with (
        pytest.warns(OffbookWarning, match="no fault was injected"),
        drive(openai_plain, faults=NEVER, auto_assert=False) as rehearsal,
    ):
        run = rehearsal.run(SCRIPT)
    assert judge_faults(run.events.all).status == "no_data"


def test_a_seed_that_chooses_nothing_fails_the_rehearsal():
    with (
        pytest.raises(CheckFailed, match="no fault was injected: the seed 1 with the rate 1e-06"),
        drive(openai_plain, faults=NEVER) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_an_unknown_kind_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match="unknown fault 'rset'"):
        drive(openai_plain, faults=["rset"])


def test_what_a_client_of_a_server_did_is_unknown(tmp_path: Path):
    from offbook.runs import start_faults
    from offbook.trace import record_trace

    with record_trace(tmp_path / "t.jsonl", subject="x") as hub, Server() as server:
        playbook = Playbook()
        playbook.load(SCRIPT)
        endpoint = server.mount(playbook, hub=hub, faults=start_faults(["reset@1"], hub))
        client = openai.OpenAI(api_key="none", base_url=endpoint.openai, max_retries=0)
        with client, pytest.raises(openai.APIConnectionError):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    (found,) = find_outcomes(Trace(tmp_path / "t.jsonl"))
    assert found.outcome == "unknown"


# --- Determinism


def test_the_same_seed_gives_the_same_events_in_two_runs():
    def faults(seed: int) -> list[dict[str, Any]]:
        with session(faults={"seed": seed, "rate": 0.5, "delay": 0}, auto_assert=False) as one:
            steps = [call("bash", {"command": "echo hi"})] * 6
            one.run(when("Go", [*steps, say("Done.")]))
            return [event.data for event in one.events.named(FAULT)]

    assert faults(3) == faults(3)
    assert faults(3) != faults(4)


# --- Commands

AGENT = """
import sys
from openai import OpenAI
client = OpenAI(max_retries=int(sys.argv[1]))
try:
    reply = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi"}]
    )
    print(reply.choices[0].message.content)
except Exception:
    print("All good.")
"""


@pytest.mark.slow
def test_a_command_gets_faults_over_the_wire(tmp_path: Path):
    (tmp_path / "agent.py").write_text(AGENT)
    command = Command(forked_command(tmp_path / "agent.py", "2", imports=["openai"]))
    with drive(command, faults=["status@1"]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.faults[0].outcome == "retried"


# --- A stream that the script cuts


def collect_calls(prompt: str) -> list[str]:
    """Return what arrived of a stream: the finish reason, if there is one."""
    with openai.OpenAI(api_key="none") as client:
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}], stream=True
        )
        choices = [chunk.choices[0] for chunk in stream if chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    return [text, *(choice.finish_reason for choice in choices if choice.finish_reason)]


def test_a_cut_stream_has_the_text_and_no_end():
    with drive(collect_calls) as rehearsal:
        assert rehearsal.run(when("Hi", [say(TEXT, stop="cut")])).output == [TEXT]
        assert rehearsal.run(when("Hi", [say(TEXT)])).output == [TEXT, "stop"]


@pytest.mark.parametrize("way", ["in process", "server"])
def test_a_cut_stream_of_anthropic_has_no_end(way: str):
    async def agent(prompt: str) -> list[str]:
        async with anthropic.AsyncAnthropic(api_key="none") as client:
            stream = await client.messages.create(
                model="m",
                max_tokens=9,
                messages=[{"role": "user", "content": prompt}],
                stream=True,
            )
            return [event.type async for event in stream]

    with drive(agent, serve=way == "server") as rehearsal:
        run = rehearsal.run(when("Hi", [say("Hello you", stop="cut")]))
    assert run.output[-1] == "content_block_delta"
    assert "message_stop" not in run.output


def test_a_session_gets_a_cut_stream_as_an_error_of_the_connection():
    with session(settings={"retries": 1}) as rehearsal:
        run = rehearsal.run(when("Go", [say("Hal", stop="cut"), say("Hello.")]))
    assert run.output == "Hello."
    assert rehearsal.events.named("model.error")[0].data["category"] == "connection"


def test_an_unknown_stop_reason_names_cut_among_the_known_ones():
    from offbook.errors import PlaybookError

    with pytest.raises(PlaybookError, match="did you mean 'cut'"):
        say("x", stop="cutt")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_after_a_fault_the_rest_of_the_mocks_is_a_warning():
    def gives_up(prompt: str) -> str | None:
        try:
            return openai_plain(prompt)
        except Exception as error:  # noqa: BLE001 - whatever the SDK makes of it
            return f"failed: {error}"

    mocks = Mocks([{"match": "*other*", "text": "never"}, {"text": "Hi."}])
    with drive(gives_up, source=mocks, faults=["content_type@1"]) as rehearsal:
        rehearsal.run("Hello")
    unused = [verdict for verdict in rehearsal.events.verdicts if "never" in verdict.message]
    assert [verdict.status for verdict in unused] == ["warn"]
