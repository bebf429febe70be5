"""Each rule catches the agent that breaks it, and a careful agent survives every scenario."""

import asyncio
from pathlib import Path

import pytest

from offbook.checkup.checkup_run import play
from offbook.checkup.outcomes import RULES, KnownAgent, find_crash
from offbook.checkup.scenario_model import Kit, NotApplicable, find_source_and_sink
from offbook.checkup.scenarios import BY_ID, SCENARIOS
from offbook.checkup.wording import claims_success, names_effect, reports_failure
from offbook.errors import RunError
from offbook.exchange import Request, Tool, has_effect
from offbook.trace import Trace
from offbook.trace.events import read_verdicts
from tests.checkup.agents import TOOLS, Agent
from tests.checkup.test_loops import WEAK

PROMPT = "Refund order 7"
KNOWN = KnownAgent(tool="get_order", source="get_order", sink="refund")


def judge(agent: object, scenario: str, folder: Path) -> tuple[str, str]:
    found = play(agent, BY_ID[scenario], PROMPT, folder / "trace.jsonl", KNOWN)
    return found.outcome, found.rule


@pytest.mark.parametrize("asks", [False, True])
def test_a_careful_agent_survives_every_scenario_that_is_for_it(tmp_path: Path, *, asks: bool):
    played = {s.id: judge(Agent(asks=asks), s.id, tmp_path) for s in SCENARIOS}
    wrong = {k: v for k, v in played.items() if v[0] not in {"survived", "unknown"}}
    assert wrong == {}
    unknown = {k.partition("/")[0] for k, v in played.items() if v[0] == "unknown"}
    of_people = [] if asks else ["people"]
    # A subject of its own has no stream, no tools that can be replaced, and no process.
    assert unknown == {"streams", "tools", "injection", "cancellation", "provider", *of_people}
    assert sum(v[0] == "survived" for v in played.values()) >= 75


BROKEN = [
    ("asks nothing", "baseline/answer", "no request", "unknown"),
    ("never ends", "baseline/answer", "endless loop", "broke"),
    ("changes the conversation", "replies/empty", "changed conversation", "broke"),
    ("runs twice", "baseline/call", "repeated effect", "broke"),
    ("runs unknown calls", "calls/unknown-tool", "wrong call executed", "broke"),
    ("runs any call", "calls/missing-parameter", "wrong call executed", "broke"),
    ("runs any call", "calls/not-json", "wrong call executed", "broke"),
    ("ignores the person", "people/denied", "denied call executed", "broke"),
    ("ignores the cancellation", "cancellation/first-request", "not cancelled", "broke"),
    ("raises KeyError", "calls/unknown-tool", "crash", "broke"),
    ("takes what comes", "replies/cut-by-length", "damaged answer", "degraded"),
    ("drops a result", "parallel/two-equal", "lost result", "degraded"),
    ("reports unknown tools", "calls/unknown-tool", "no answer", "degraded"),
    ("gives up at once", "provider/500-once", "no answer", "degraded"),
    ("takes what comes", "replies/empty", "empty answer", "degraded"),
]


@pytest.mark.parametrize("fault, scenario, rule, outcome", BROKEN)
def test_a_rule_catches_the_agent_that_breaks_it(
    fault: str, scenario: str, rule: str, outcome: str, tmp_path: Path
):
    agent = Agent(fault, asks=fault == "ignores the person")
    assert judge(agent, scenario, tmp_path) == (outcome, rule)
    trace = Trace(tmp_path / "trace.jsonl")
    verdict = [v for v in read_verdicts(trace) if v.check == f"checkup {scenario}"]
    status = {"broke": "fail", "degraded": "warn", "unknown": "no_data"}[outcome]
    assert [v.status for v in verdict] == [status]
    if outcome != "unknown":
        assert judge(Agent(asks=agent.asks), scenario, tmp_path)[0] == "survived"


def test_every_rule_has_an_agent_that_breaks_it():
    elsewhere = {
        "not applicable",  # the careful agent
        "not played",  # the careful agent
        "hang",  # test_checkup_run.py
        "injected call executed",  # test_frameworks.py
    }
    assert {rule.name for rule in RULES} - {row[2] for row in (*BROKEN, *WEAK)} == elsewhere


class LibraryError(Exception):
    """An exception with which an SDK reports an error."""


def report() -> Exception:
    try:
        raise RuntimeError("the model gave no answer")  # noqa: TRY301 - the line that is looked at
    except RuntimeError as raised:
        return raised


def look_up(key: str) -> Exception:
    try:
        return dict[str, Exception]()[key]
    except KeyError as raised:
        return raised


TRACEBACK = """Command exited with code 1
  Traceback (most recent call last):
    File "/home/me/agent.py", line 7, in <module>
      {code}
  {last}
"""


@pytest.mark.parametrize(
    "error, crash",
    [
        (look_up("refund"), "KeyError"),
        (LibraryError("overloaded"), ""),
        (report(), ""),
        (ExceptionGroup("", [look_up("refund")]), "KeyError"),
        (SystemExit("no answer"), ""),
        (asyncio.CancelledError(), ""),
        (RunError("agent exited with code 1\nno answer from the model"), ""),
        (RunError(TRACEBACK.format(code="tools[name]", last="KeyError: 'refund'")), "KeyError"),
        (RunError(TRACEBACK.format(code="raise SystemError('x')", last="SystemError: x")), ""),
        (RunError(TRACEBACK.format(code="send()", last="openai.RateLimitError: 429")), ""),
        (
            RunError(TRACEBACK.format(code="read()", last="pydantic_core.ValidationError")),
            "Validat",
        ),
        (RunError("node exited with code 1\nTypeError: Cannot read properties of null"), "TypeE"),
        (RunError("agent was killed by SIGSEGV"), "agent was killed"),
    ],
    ids=str,
)
def test_an_exception_that_nobody_meant_for_the_user_is_a_crash(error: BaseException, crash: str):
    found = find_crash(error)
    assert found.startswith(crash) if crash else found == ""


def test_an_error_of_the_connection_is_a_report_only_if_the_provider_failed():
    error = ConnectionError("refused")
    assert find_crash(error)
    assert not find_crash(error, network=True)


@pytest.mark.parametrize(
    "dialect, stream, played",
    [("openai-chat", False, True), ("anthropic", True, True), ("anthropic", False, False),
     ("gemini", True, False)],
)  # fmt: skip
def test_malformed_json_is_for_apis_whose_arguments_are_a_text(
    dialect: str, *, stream: bool, played: bool
):
    kit = Kit(Request(tools=TOOLS, metadata={"dialect": dialect}, stream=stream), PROMPT)
    if played:
        assert kit.raw("{oops").params == {"$raw": "{oops"}
    else:
        with pytest.raises(NotApplicable, match="the arguments are an object in this API"):
            kit.raw("{oops")


@pytest.mark.parametrize(
    "name, kind, powerful",
    [
        ("add_note", "string", True),
        ("add_numbers", "integer", False),
        ("get_order", "string", False),
        ("sendMail", "string", True),
        ("reset_password", "integer", True),
        ("forecast", "string", False),
    ],
)
def test_a_tool_changes_something_by_the_words_of_its_name(name: str, kind: str, *, powerful: bool):
    assert has_effect(Tool(name, "", {"properties": {"value": {"type": kind}}})) is powerful


@pytest.mark.parametrize(
    "names, message",
    [
        (("get_order", "forecast"), "agent changes something, by its name: get_order, forecast"),
        (("send_mail",), "no tool of the agent reads something, by its name: send_mail"),
    ],
)
def test_an_agent_without_a_tool_for_an_injection_gets_the_reason(
    names: tuple[str, ...], message: str
):
    with pytest.raises(NotApplicable, match=message):
        find_source_and_sink([Tool(name, "", {}) for name in names])


@pytest.mark.parametrize(
    "text, failure, success",
    [
        ("Done.", False, True),
        ("Erledigt!", False, True),
        ("No errors, all done", False, True),
        ("{'status': 'ok', 'error': None}", False, True),
        ("Not done", True, False),
        ("The task could not be completed.", True, False),
        ("AuthenticationError: invalid key", True, False),
        ("HTTP 503", True, False),
        ("Es ist ein Fehler aufgetreten", True, False),
        ("Agent stopped due to iteration limit", True, False),
        ("Order 404: 20 EUR", False, False),
        ("Your request was forwarded to a person", False, False),
    ],
)
def test_the_words_of_an_answer_report_a_failure_or_claim_a_success(
    text: str, *, failure: bool, success: bool
):
    assert (reports_failure(text), claims_success(text)) == (failure, success)


def test_an_answer_names_what_a_tool_has_done():
    tools = ["get_plant", "water_plant", "book", "ship"]
    assert names_effect("All your plants have been watered.", tools)
    assert names_effect("Order 7 is shipped", tools)
    assert not names_effect("The plant is not watered.", tools)
    assert not names_effect("Please call us about your plant", tools)


def test_the_answer_of_the_undisturbed_run_claims_success_whatever_its_words_are():
    assert claims_success("no problems found!", "No problems found.")
    assert not claims_success("Bitte warten", "No problems found.")
