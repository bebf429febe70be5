"""Mocks in all their shapes, and who wins when names meet."""

from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.exchange.messages import Image
from offbook.subjects.session.extensions import Api
from offbook.subjects.session.hooks import Context
from offbook.types import Text, ToolOutcome

JSON = dict[str, Any]
FULL = {"content": [{"type": "text", "text": "full"}], "details": {"n": 1}}


async def later(params: JSON) -> str:
    return f"later {params['command']}"


def full(params: JSON) -> JSON:
    return {"content": [{"type": "text", "text": params["command"]}], "details": params}


def echo(params: JSON) -> str:
    return f"$ {params['command']}"


GIVEN: list[JSON] = []


@pytest.mark.parametrize(
    "mock, text, details",
    [
        ("written", "written", {}),
        (echo, "$ ls", {}),
        (lambda: "no parameters wanted", "no parameters wanted", {}),
        (full, "ls", {"command": "ls"}),
        (later, "later ls", {}),
        (FULL, "full", {"n": 1}),
        ({"content": "short"}, "short", {}),
        ({"content": ["a", Text("b")]}, "a\nb", {}),
        (ToolOutcome((Text("own"),), {"k": 2}), "own", {"k": 2}),
        (None, "", {}),
        (GIVEN.append, "", {}),
    ],
    ids=[
        "string",
        "function",
        "function of nothing",
        "function of a full result",
        "async function",
        "static full result",
        "content as a string",
        "content as strings",
        "outcome",
        "nothing",
        "a function of C",
    ],
)
def test_a_mock_may_have_any_of_these_shapes(mock: Any, text: str, details: Any):
    with session(mock_tools={"bash": mock}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.details) == (text, details)
        assert (result.mocked, result.is_error) == (True, False)


def test_a_mock_may_answer_with_a_picture():
    picture = {"type": "image", "data": "eA==", "media_type": "image/png"}
    with session(mock_tools={"read": {"content": [picture]}}) as t:
        t.run(when("x", [call("read", {"path": "a.png"}), say("ok")]))
        assert t.events.tool_results[0].content == (Image("eA==", "image/png"),)


@pytest.mark.parametrize(
    "answer, says",
    [
        (5, "expected a tool result, got int"),
        ({"text": "x"}, "unknown key 'text'"),
        ({"details": 1}, "missing 'content'"),
        ({"content": 5}, "expected a list as 'content' of a tool result, got int"),
        ({"content": [5]}, "invalid content block"),
        ({"content": [{"type": "audio"}]}, "invalid content block"),
        ({1: 2}, "unknown key '1'"),
    ],
)
def test_what_a_mock_function_answers_wrongly_is_an_error_result_with_the_place(
    answer: Any, says: str
):
    def bash() -> Any:
        return answer

    with session(mock_tools={"bash": bash}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (result,) = t.events.tool_results
        assert result.is_error
        assert says in result.text
        assert "mock_tools['bash']" in result.text


def own_bash(api: Api) -> None:
    @api.tool("bash")
    def bash(params: JSON, ctx: Context) -> str:
        return "the extension's"


def test_a_tool_of_an_extension_wins_over_a_mock_and_the_mock_is_reported():
    with session(extensions=[own_bash], mock_tools={"bash": "the mock's"}) as t:
        t.run(when("x", [call("bash"), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.mocked) == ("the extension's", False)
    (warning,) = [v for v in t.events.verdicts if v.status == "warn"]
    assert warning.check == "mocks used"
    assert warning.actual == ["bash"]
    assert "own_bash" in warning.message
    assert "mock_extension_tools=True" in warning.message


def test_a_mock_wins_over_a_tool_of_an_extension_when_the_test_says_so():
    mocks = {"bash": "the mock's"}
    with session(extensions=[own_bash], mock_tools=mocks, mock_extension_tools=True) as t:
        t.run(when("x", [call("bash"), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.mocked) == ("the mock's", True)
    assert [v.status for v in t.events.verdicts] == ["pass"]


def test_a_mock_that_nobody_used_is_a_warning_and_no_failure():
    with session(mock_tools={"bash": "ok", "read": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
    (warning,) = [v for v in t.events.verdicts if v.status == "warn"]
    assert warning.holds
    assert warning.message == "never used: mock_tools read"


def test_a_mock_may_be_a_tool_of_its_own():
    def search(params: JSON) -> str:
        return f"found {params['q']}"

    with session(mock_tools={"search": search}) as t:
        t.run(when("x", [call("search", {"q": "eggs"}), say("ok")]))
        assert t.events.tool_results[0].text == "found eggs"


@pytest.mark.parametrize(
    "details", [object(), {1: {2}}, {(1,): "x"}], ids=["object", "number keys", "tuple keys"]
)
def test_details_that_are_no_json_reach_then_as_they_are_and_the_trace_as_words(details: Any):
    heard: list[Any] = []

    def extension(api: Api) -> None:
        @api.tool("odd")
        def odd(params: JSON, ctx: Context) -> ToolOutcome:
            return ToolOutcome((Text("ok"),), details)

    with session(extensions=[extension]) as t:
        t.run(
            when("x", [call("odd").then(lambda result: heard.append(result.details)), say("ok")]),
            when("y", [call("odd"), say("ok")]),
        )
        assert len(t.events.tool_results) == 2
        assert t.events.tool_results[0].details is not None
    assert heard[0] is details
