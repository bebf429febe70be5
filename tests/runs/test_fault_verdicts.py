"""A run with faults has a verdict on them, and fails if the agent swallowed one."""

from __future__ import annotations

import socket
from contextlib import suppress

import openai
import pytest

from offbook import Mocks, drive, say, when
from offbook.errors import CheckFailed, IsolationError, ModelError, ScriptUnfinished
from offbook.runs import Rehearsal
from offbook.trace import RUN_END
from tests.runs.echo_subject import HELLO, Always, Echo


class AfterAnError(Echo):
    """A subject that ends with this answer after an error of the model."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self._answer = answer

    async def prompt(self, text: str, /) -> object:
        try:
            return await super().prompt(text)
        except ModelError as error:
            return self._answer.format(error=error)


def statuses(t: Rehearsal) -> dict[str, str]:
    return {verdict.check: verdict.status for verdict in t.events.verdicts}


def test_a_fault_that_the_agent_handles_passes():
    with drive(Echo(patient=True), faults=["status@1"]) as t:
        assert t.run(HELLO).output == "Hi!"
        assert statuses(t) == {"playbook consumed": "pass", "faults handled": "pass"}


def test_a_fault_that_the_agent_swallows_fails_the_run():
    with drive(AfterAnError(""), faults=["status@1"]) as t:
        with pytest.raises(CheckFailed, match="swallowed"):
            t.run(HELLO)
        # An agent that gives up after a fault leaves the rest of the script.
        assert statuses(t) == {"playbook consumed": "warn", "faults handled": "fail"}
        assert t.latest_run is not None
        assert [fault.outcome for fault in t.latest_run.faults] == ["swallowed"]


def test_after_a_fault_that_was_swallowed_the_rest_of_the_script_is_discarded():
    with drive(AfterAnError(""), faults=["status@1"]) as t:
        with pytest.raises(CheckFailed):
            t.run(HELLO)
        assert t.run(when("Again", [say("1")])).output == "1"


def test_after_a_fault_that_was_swallowed_nothing_else_fails_the_rehearsal():
    t = drive(AfterAnError(""), faults=["status@1", "reset@9"])
    with pytest.raises(CheckFailed):
        t.run(HELLO)
    t.dispose()


def test_without_automatic_assertions_a_swallowed_fault_is_a_verdict_only():
    with drive(AfterAnError(""), faults=["status@1"], auto_assert=False) as t:
        assert t.run(HELLO).output == ""
        assert statuses(t)["faults handled"] == "fail"


@pytest.mark.filterwarnings("ignore:never injected")
def test_without_automatic_assertions_a_fault_that_was_never_injected_has_no_verdict():
    with drive(Echo(), faults=["status@9"], auto_assert=False) as t:
        t.run(HELLO)
        assert "faults handled" not in statuses(t)


def test_a_fault_whose_outcome_is_unknown_fails_nothing():
    with drive(AfterAnError("All done."), faults=["status@1"]) as t:
        t.run(HELLO)
        assert statuses(t)["faults handled"] == "no_data"


def test_a_run_that_fails_after_a_fault_has_a_verdict_on_it():
    with drive(Echo(), faults=["status@1"]) as t:
        with pytest.raises(ModelError):
            t.run(HELLO)
        assert statuses(t) == {"run finished": "error", "faults handled": "pass"}
        names = [event.event for event in t.events.all]
        assert names.index(RUN_END) == len(names) - 2


def test_an_error_of_the_connection_is_an_error_of_the_source():
    with drive(AfterAnError("{error}"), faults=["reset@1"], auto_assert=False) as t:
        run = t.run(HELLO)
        assert run.output
        assert run.output != "Hi!"


def test_a_run_before_the_first_fault_is_checked_as_one_without_faults():
    t = drive(Echo(requests=0), faults=["status@9"])
    with pytest.raises(ScriptUnfinished, match="playbook not fully consumed"):
        t.run(HELLO)
    t.dispose()


TWO_STEPS = when("Hello", [say("Hi!"), say("Again!")])


@pytest.mark.parametrize("fault", ["status@1", "rate_limit@1", "reset@1", "slow@1"])
def test_a_fault_that_the_agent_got_over_excuses_no_rest_of_the_script(fault: str):
    t = drive(Echo(patient=True), faults=[fault])
    with pytest.raises(ScriptUnfinished, match="playbook not fully consumed"):
        t.run(TWO_STEPS)
    t.dispose()


def test_a_fault_that_the_agent_got_over_excuses_no_mock_that_is_left():
    mocks = Mocks([{"text": "Hi!"}, {"text": "Again!"}])
    t = drive(Echo(patient=True), source=mocks, faults=["status@1"])
    t.run("Hello")
    with pytest.raises(CheckFailed, match="never used"):
        t.dispose()


def refused_and_gave_up(_: str) -> str:
    with suppress(OSError):
        socket.create_connection(("192.0.2.1", 80))
    try:
        client = openai.OpenAI(api_key="none", max_retries=0)
        client.responses.create(model="m", input="Hello")
    except openai.APIError:
        return "failed: APIConnectionError"
    return ""


def test_a_refused_connection_fails_a_run_that_a_fault_ended():
    t = drive(refused_and_gave_up, faults=["reset@1"])
    with pytest.raises(IsolationError, match=r"192\.0\.2\.1"):
        t.run(TWO_STEPS)
    t.dispose()


def test_a_fault_that_was_never_injected_fails_the_rehearsal():
    t = drive(Echo(), source=Always(), faults=["status@9"])
    t.run("Hello")
    with pytest.raises(CheckFailed, match="never injected: status@9"):
        t.dispose()
    assert [(v.check, v.status) for v in t.events.verdicts][-1] == ("faults injected", "fail")
