"""Writes a test from a tape: the model as a playbook, the tools as mocks, and what the agent did.

The test is for people to read and to change; it needs the tape no longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from offbook.errors import UsageError
from offbook.exchange.messages import Text, Thinking, ToolCall
from offbook.exchange.python_source import identifier, literal
from offbook.exchange.tool_track import HOST, SERVER

if TYPE_CHECKING:
    from offbook.sources.cassette.cassette_file import CassetteFile
    from offbook.sources.cassette.format import Interaction, RecordedAnswer, RecordedTool

IN_TURN = '''
def in_turn(*results):
    """Return a mock that returns these results, one after the other."""
    waiting = iter(results)
    return lambda params: next(waiting)

'''


class WrittenTest(NamedTuple):
    """The text of a test, and what of the tape is not in it."""

    text: str
    skipped: list[str]


class _Turn(NamedTuple):
    prompt: str
    steps: list[str]


def write_test(file: CassetteFile, agent: str, name: str, origin: object) -> WrittenTest:
    """Return a test of an agent, given as `module:name`, that plays a tape.

    `origin` is the file that the test says it is from.
    """
    module, _, variable = agent.partition(":")
    if not module or not variable.isidentifier():
        raise UsageError(f"invalid agent {agent!r}", hint="write MODULE:NAME, such as shop:agent")
    turns: list[_Turn] = []
    skipped: list[str] = []
    tools: list[RecordedTool] = []
    people: list[RecordedAnswer] = []
    words = {"when"}
    items = [file.read(entry) for entry in file.entries if not entry.inside]
    calling = False
    for index, item in enumerate(items):
        prompt = _new_prompt(item)
        if not turns or (prompt and not (calling and prompt == turns[-1].prompt)):
            turns.append(_Turn(prompt, []))
        is_last = index + 1 == len(items)
        step, used, unknown = _render_reply(item, unanswered=is_last)
        turns[-1].steps.append(step)
        # A mocked tool asks nothing.
        asked = [answer for answer in item.people if not answer.inside]
        turns[-1].steps.extend(map(_render_person, asked))
        people += asked
        words |= used
        skipped += [f"interaction {index + 1}: {kind}" for kind in unknown]
        tools += [
            t for t in _in_order(item) if not t.real and not t.tool.startswith((SERVER, HOST))
        ]
        calling = any(isinstance(block, ToolCall) for block in item.response.reply_blocks)
    mocks = _render_mocks(tools)
    lines = [f"def test_{identifier(name, 'tape')}(offbook):"]
    if mocks:
        lines += ["    mock_tools = {", *(f"        {mock}," for mock in mocks), "    }"]
    options = ", mock_tools=mock_tools" if mocks else ""
    lines.append(f"    run = offbook.drive({variable}{options}).run(")
    for turn in turns:
        lines.append(f"        when({literal(turn.prompt)}, [")
        lines += [f"            {step}," for step in turn.steps]
        lines.append("        ]),")
    lines.append("    )")
    if tools:
        lines.append("    executed = [(tool.name, tool.input) for tool in run.executed]")
        lines.append("    assert executed == [")
        lines += [f"        ({literal(t.tool)}, {literal(t.input)})," for t in tools]
        lines.append("    ]")
    if items and (answer := items[-1].response.output):
        lines.append(f"    assert run.output == {literal(answer)}")
    imports = [f"from offbook import {', '.join(sorted(words))}"]
    if people:
        decisions = sorted({answer.decision for answer in people} - {""})
        imports.append(f"from offbook.people import {', '.join([*decisions, 'person'])}")
    text = "\n".join(
        [
            f'"""Written from {origin}: the model and its tools are scripted."""',
            "",
            *imports,
            f"from {module} import {variable}",
            "",
            *(IN_TURN.split("\n")[:-1] if any("in_turn(" in mock for mock in mocks) else []),
            "",
            *lines,
            "",
        ]
    )
    return WrittenTest(text, skipped)


def _in_order(item: Interaction) -> list[RecordedTool]:
    """Return the tools in the order of their calls: parallel ones are recorded as they end."""
    calls = [block.id for block in item.response.reply_blocks if isinstance(block, ToolCall)]
    positions = {call_id: number for number, call_id in enumerate(calls)}
    return sorted(item.tools, key=lambda tool: positions.get(tool.call, -1))


def _new_prompt(item: Interaction) -> str:
    """Return what a person wrote since the interaction before, or an empty text."""
    if item.request.prompt is not None:
        return item.request.prompt
    texts = [message.text for message in item.request.messages if message.role == "user"]
    return next((text for text in reversed(texts) if text.strip()), "")


def _render_reply(item: Interaction, *, unanswered: bool) -> tuple[str, set[str], list[str]]:
    """Return a reply as a step of a playbook, the words that it uses, and what it cannot say."""
    if (error := item.response.error) is not None:
        return f"fail({literal(error.message)}, status={error.status})", {"fail"}, []
    parts: list[str] = []
    unknown: list[str] = []
    for block in item.response.reply_blocks:
        match block:
            case Text(text):
                parts.append(f"say({literal(text)})")
            case Thinking(text):
                parts.append(f"think({literal(text)})")
            case ToolCall():
                option = ", unanswered=True" if unanswered else ""
                parts.append(f"call({literal(block.name)}, {literal(block.arguments)}{option})")
            case _:
                unknown.append(type(block).__name__)
    words = {part.partition("(")[0] for part in parts}
    if not parts:
        return 'say("")', {"say"}, unknown
    return parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]", words, unknown


def _render_person(answer: RecordedAnswer) -> str:
    about = literal(answer.tool or answer.question)
    if answer.decision == "allow":
        given = f"allow({literal(answer.params)})" if answer.params is not None else "allow"
    elif answer.decision == "deny":
        given = f"deny({literal(answer.reason)})" if answer.reason else "deny"
    else:
        given = literal(answer.answer)
    return f"person({about}, {given})"


def _render_mocks(tools: list[RecordedTool]) -> list[str]:
    """Return the mocks: a value for a tool with one result, or its results in turn."""
    by_name: dict[str, list[str]] = {}
    for tool in tools:
        by_name.setdefault(tool.tool, []).append(_render_result(tool))
    return [
        f"{literal(name)}: "
        + (results[0] if len(set(results)) == 1 else f"in_turn({', '.join(results)})")
        for name, results in by_name.items()
    ]


def _render_result(tool: RecordedTool) -> str:
    if (error := tool.error) is not None:
        module, _, name = error.type.partition(":")
        known = module == "builtins" and name.isidentifier()
        message = error.message if known else f"{name}: {error.message}"
        return f"{name if known else 'RuntimeError'}({literal(message)})"
    result: Any = tool.result
    fields = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
    # A message of a framework: the mock returns what the tool says.
    if tool.type and "content" in fields and not tool.type.startswith("offbook."):
        return literal(_content_text(fields["content"]))
    return literal(result)


def _content_text(content: Any) -> Any:
    """Return the text of content blocks."""
    if not isinstance(content, list):
        return content
    blocks = cast("list[Any]", content)
    texts = [cast("dict[str, Any]", b).get("text", "") for b in blocks if isinstance(b, dict)]
    return "\n".join(texts)
