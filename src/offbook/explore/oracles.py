"""Oracles: what no agent should do, whatever the model does. They need no invariant of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from offbook.determinism.faults import INSTRUCTION
from offbook.errors import UsageError, require_known
from offbook.exchange.dialects.provider_responses import is_json
from offbook.exchange.messages import RAW_ARGUMENTS, AnyBlock, Text, find_calls, join_text
from offbook.exchange.model import compile_validator
from offbook.exchange.tool_effects import classify
from offbook.explore.authority import AuthorityEvidence, check_authority, is_error
from offbook.explore.generated_model import MARK
from offbook.explore.plain_tools import describe_exchange, has_key
from offbook.secrets import excerpt
from offbook.secrets.masks import ending
from offbook.trace.events import (
    CHANGE,
    ERROR,
    FAULT,
    PERSON,
    REPLY,
    REQUEST,
    TOOL_CALL,
    TOOL_END,
    TOOL_START,
    ConversationChange,
    Verdict,
)
from offbook.trace.executions import read_executions, same_result, to_result_content
from offbook.trace.integrity import find_denied

if TYPE_CHECKING:
    from offbook.exchange.messages import JSON, Content, Message, ToolCall
    from offbook.exchange.model import Request, Tool
    from offbook.explore.plain_tools import LoopWatch
    from offbook.runs.run import Run
    from offbook.trace.events import Event
    from offbook.trace.query import Events

MIN_MARK = 8  # characters of a text that identifies a session
MAX_GROWTH = 3  # times as many messages as were said
SHOWN_END = 40  # characters before a cut
LOST = "tool_lost"


class BrokenInvariant(msgspec.Struct, frozen=True):
    """A broken invariant: its name, and how it was broken.

    Two violations with one `key` are the same bug; the message may differ from run to run.
    """

    invariant: str
    message: str
    key: str


class RunEvidence:
    """A run, and the numbers of the events at which new conversations began.

    `authority` is what is known of a run with an instruction in a result. `beside` are the prompts
    of two conversations that were side by side. `plain` watched the tools of a loop. `states` are
    those of the world after each execution in a framework, by its call and number; None without a
    state.
    """

    def __init__(
        self,
        run: Run,
        sessions: Sequence[int] = (),
        authority: AuthorityEvidence | None = None,
        beside: Sequence[str] = (),
        plain: LoopWatch | None = None,
        states: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        self.run = run
        self.states = states
        self.plain = plain
        self.sessions = sessions
        self.authority = authority
        self.beside = beside

    @cached_property
    def changed_executions(self) -> list[ConversationChange]:
        """What a tool did otherwise than the model wrote, and than the request says."""
        if not self.run.events.count(TOOL_START):
            return []
        kinds = {"again", "input", "returned"}
        return [change for change in self.run.changes if change.what in kinds]


class Oracle(NamedTuple):
    """What always holds: its title in reports, the reason, and how a run is checked."""

    title: str
    reason: str
    check: Callable[[RunEvidence], Iterator[tuple[str, str]]] | None = None


def _check_conversation(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    events = evidence.run.events
    for event in events.named(CHANGE):
        change = ConversationChange.read(event)
        if change.level != "fails":
            continue
        if change.what == "text" and change.expected == "nothing" and _said_itself(events, event):
            continue
        if change.what == "result" and _has_instruction(evidence.run, change):
            continue
        yield change.what, change.text
    yield from _find_forgotten(evidence)
    yield from _find_changed_results(evidence)
    if evidence.plain is not None and not evidence.beside:
        sent = {r.tool_call_id: r.text for r in evidence.run.events.tool_results}
        if len(sent) > 1:
            yield from evidence.plain.find_exchanged(_list_calls(evidence.run), sent)


def _has_instruction(run: Run, change: ConversationChange) -> bool:
    """Return whether a changed result has the instruction of the search.

    The search writes it into the tables of the agent, of which the conversation may have rows.
    """
    return any(
        INSTRUCTION in result.text
        for event, request in zip(run.events.named(REQUEST), run.requests, strict=False)
        if event.data.get("exchange") == change.exchange
        for result in request.messages[change.message - 1].results
    )


def _said_itself(events: Events, event: Event) -> bool:
    """Return whether a text is one that the agent gave as its own answer.

    Such as "Sorry, something went wrong." after a reply that it cannot use, or "That takes too
    many steps." in place of another request.
    """
    ends = [end for end in events.named(REPLY, ERROR, FAULT) if end.seq < event.seq]
    if not ends:
        return False
    last = ends[-1]
    if last.event != REPLY or _is_unusable(last.data):
        return True
    exchange = event.data.get("exchange")
    new = [r.data["new"] for r in events.named(REQUEST) if r.data["exchange"] == exchange]
    blocks: list[JSON] = msgspec.to_builtins(last.data["blocks"])
    has_calls = any(block.get("type") == "tool_call" for block in blocks)
    return has_calls and bool(new and new[0]) and new[0][-1]["role"] == "user"


def _find_forgotten(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Yield what a request no longer has: the prompt, or what was done before an error."""
    events = evidence.run.events
    changes = [ConversationChange.read(event) for event in events.named(CHANGE)]
    dropped = {change.exchange for change in changes if change.what == "dropped"}
    dropped -= {c.exchange for c in changes if c.what in {"summary", "inserted", "prompt"}}
    failures = [event.seq for event in events.named(ERROR, FAULT)]
    if evidence.beside or not (dropped or failures):
        return
    sent = events.named(REQUEST)
    pairs = zip(sent, sent[1:], pairwise(evidence.run.requests), strict=False)
    for first, second, (before, after) in pairs:
        prompt, latest = before.latest_prompt.strip(), after.latest_prompt.strip()
        if latest == prompt:
            if any(first.seq < number < second.seq for number in failures):
                yield from _find_lost_effects(before, after)
            continue
        # A new prompt begins another turn.
        is_same_turn = any(latest in message.text for message in before.messages)
        texts = [after.system, *(message.text for message in after.messages)]
        if is_same_turn and second.data["exchange"] in dropped and prompt not in "\n".join(texts):
            yield "prompt", f"the prompt {excerpt(prompt, SHOWN_END)!r} is left out of its own turn"


def _find_lost_effects(before: Request, after: Request) -> Iterator[tuple[str, str]]:
    """Yield the powerful tools that ran before an error, and have no result or another one now."""
    tools = {tool.name: tool for tool in before.tools}
    calls = {call.id: call for message in before.messages for call in message.calls}
    now = {result.call_id: result for message in after.messages for result in message.results}
    for result in (result for message in before.messages for result in message.results):
        call = calls.get(result.call_id)
        tool = None if call is None else tools.get(call.name)
        if tool is None or not classify(tool).sink or is_error(result.text, tool.name):
            continue
        got = now.get(result.call_id)
        if got is None and len(after.messages) < len(before.messages):
            what = f"{tool.name} returned {excerpt(result.text, SHOWN_END)!r}"
            yield tool.name, f"after an error the agent begins again and forgets that {what}"
        elif (
            got is not None
            and not same_result(got.content, result.content)
            and "already" not in got.text.lower()
            and not is_error(got.text, tool.name)
        ):
            texts = [excerpt(one.text, SHOWN_END) for one in (result, got)]
            what = f"{tool.name} ran again: it returned {texts[0]!r}, then {texts[1]!r}"
            yield tool.name, f"after an error {what}"


def _find_changed_results(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Yield the results of which the model got a part, and those of another call."""
    if all(change.what != "returned" for change in evidence.changed_executions):
        return
    replies: dict[int, list[tuple[str, tuple[Content, ...], tuple[Content, ...]]]] = {}
    for call in read_executions(evidence.run.events.all).calls:
        for execution in call.executions[-1:]:
            if execution.end is None or call.result is None:
                continue
            sent = to_result_content(call.result.content)
            content = execution.end.content
            own = sent if content is msgspec.UNSET else to_result_content(content)
            replies.setdefault(call.reply, []).append((execution.tool, own, sent))
    for results in replies.values():
        for tool, own, sent in results:
            if same_result(own, sent):
                continue
            if cut := _describe_cut(tool, own, sent):
                yield "result", cut
            elif sent and any(same_result(other, sent) for _, other, _ in results):
                # One cause, whichever tools were called.
                yield "exchanged", describe_exchange(tool, join_text(own), join_text(sent))


def _describe_cut(tool: str, own: tuple[Content, ...], sent: tuple[Content, ...]) -> str:
    """Return how a result is cut without a word: in JSON, or after one of its texts."""
    returned, text = join_text(own), join_text(sent)
    if text and returned.startswith(text) and _is_json(returned) and not _is_json(text):
        return f"the JSON that {tool} returned is cut after {ending(text, SHOWN_END)!r}"
    left_out = own[len(sent) :]
    if (
        sent
        and left_out
        and own[: len(sent)] == sent
        and all(isinstance(b, Text) for b in left_out)
    ):
        return f"{len(left_out)} of the {len(own)} texts that {tool} returned are left out"
    return ""


def _is_json(text: str) -> bool:
    return text[:1] in {"{", "["} and is_json(text)


def _is_unusable(reply: JSON) -> bool:
    """Return whether a reply is empty, refused or cut short, or has a call without arguments."""
    if reply.get("stop", "stop") not in {"stop", "tool_use"}:
        return True
    blocks: list[JSON] = msgspec.to_builtins(reply["blocks"])
    if not any(block.get("text") or block.get("name") for block in blocks):
        return True
    return any(RAW_ARGUMENTS in (block.get("arguments") or {}) for block in blocks)


def _check_repeats(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    for change in evidence.changed_executions:
        if change.what == "again":
            yield change.expected.partition(":")[0], f"one call of the model: {change.got}"
    faults = evidence.run.events.named(FAULT)
    if evidence.plain is not None:
        # Of two conversations side by side, it is not known which one a tool ran for.
        if (faults or evidence.run.events.named(ERROR)) and not evidence.beside:
            yield from evidence.plain.find_repeated(_list_calls(evidence.run))
    elif lost := [event for event in faults if event.data["kind"] == LOST]:
        yield from _find_lost_repeats(evidence, lost)


def _find_lost_repeats(evidence: RunEvidence, lost: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """Yield each powerful tool that a framework ran again because its result was lost."""
    tools = {tool.name: tool for request in evidence.run.requests for tool in request.tools}
    first_lost = {event.data.get("call_id"): event.seq for event in reversed(lost)}
    for call in read_executions(evidence.run.events.all).calls:
        tool, since = tools.get(call.data.tool), first_lost.get(call.data.call_id)
        if since is None or tool is None or not classify(tool).sink:
            continue
        # The fault is noted when the execution has begun; earlier ones had failed.
        begun = sum(run.started.seq < since for run in call.executions)
        runs = [run for run in call.executions[begun - 1 :] if run.seen]
        if len(runs) < 2 or any(run.input != runs[0].input for run in runs):  # noqa: PLR2004 - again
            continue
        if evidence.states is None:
            harmless = has_key(runs[0].input)
        else:
            harmless = len({evidence.states.get((call.data.call_id, r.number)) for r in runs}) == 1
        if not harmless:
            times = f"{tool.name} ran {len(runs)} times with {runs[0].input}"
            yield tool.name, f"one call of the model: {times}"


def _list_calls(run: Run) -> list[list[ToolCall] | None]:
    """Return the calls of each reply; None of an error of the provider."""
    replies = [reply.data.get("blocks") for reply in run.events.named(REPLY, ERROR)]
    blocks = msgspec.convert(msgspec.to_builtins(replies), list[tuple[AnyBlock, ...] | None])
    return [None if reply is None else [*find_calls(reply)] for reply in blocks]


def _check_inputs(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Yield the tools that got another input than the model's, which their schema forbids."""
    run = evidence.run
    if not any(change.what == "input" for change in evidence.changed_executions):
        return
    tools = {tool.name: tool for request in run.requests for tool in request.tools}
    calls = {call.tool_call_id: call.input for call in run.events.tool_calls}
    for executed in run.executed.known():
        tool, asked = tools.get(executed.name), calls.get(executed.call_id)
        if tool is None or asked is None or asked == executed.input:
            continue
        if _is_valid(tool, asked) and not _is_valid(tool, executed.input):
            yield executed.name, f"{executed.name} got {executed.input}, the model wrote {asked}"


def _is_valid(tool: Tool, value: Any) -> bool:
    try:
        return not compile_validator(tool.schema, tool.name)(value)
    except UsageError:  # a schema that no validator reads
        return True


def _check_leaks(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Yield what an earlier session said and a later one has, elsewhere than in a result."""
    run = evidence.run
    if evidence.beside:
        yield from _check_leaks_beside(run, evidence.beside)
    if not evidence.sessions:
        return
    starts = [*evidence.sessions]
    events = run.events.named(REQUEST, REPLY)
    numbers = [event.seq for event in events if event.event == REQUEST]
    requests = run.requests
    for start in starts:
        earlier = [r for r, n in zip(requests, numbers, strict=True) if n <= start]
        later = [r for r, n in zip(requests, numbers, strict=True) if n > start]
        if not earlier or not later:
            continue
        marks = _list_marks(events, start, later)
        for request in later:
            for place, text in _list_texts(request):
                for mark in marks:
                    if mark in text:
                        yield place, f"{mark!r} of an earlier session is in the {place}"
                        return
        answer = str(run.output or "")
        for mark in marks:
            if mark in answer:
                yield "answer", f"{mark!r} of an earlier session is in the answer"
                return


def _check_leaks_beside(run: Run, prompts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the prompt of one of two conversations that is in a request of the other."""
    for request in run.requests:
        others = [prompt for prompt in prompts if prompt != request.first_prompt]
        for place, text in _list_texts(request):
            for prompt in others if len(others) < len(prompts) else ():
                # One prompt may be a part of the other.
                if prompt in text and request.first_prompt not in text:
                    yield place, f"{prompt!r} of another session is in the {place}"
                    return


def _list_marks(events: Sequence[Event], start: int, later: Sequence[Request]) -> list[str]:
    """Return the ids of calls and the texts of the model that only the earlier sessions had."""
    before: list[str] = []
    after: list[str] = []
    for event in events:
        if event.event == REPLY:
            (before if event.seq <= start else after).extend(_marks_of(event.data["blocks"]))
    own = {*after, later[0].first_prompt}
    return [mark for mark in dict.fromkeys(before) if mark not in own]


def _marks_of(blocks: Any) -> Iterator[str]:
    for block in blocks:
        data: JSON = msgspec.to_builtins(block)
        for key in ("id", "text"):
            value = data.get(key)
            if isinstance(value, str) and len(value) >= MIN_MARK:
                yield value
        # Other arguments may be in the code of the agent, too.
        arguments: JSON = data.get("arguments") or {}
        yield from (value for value in arguments.values() if value == MARK)


def _list_texts(request: Request) -> Iterator[tuple[str, str]]:
    yield "system prompt", request.system
    for message in request.messages:
        if message.role != "tool":
            yield "conversation", _text_of(message)


def _text_of(message: Message) -> str:
    return "\n".join([message.text, *(call.id for call in message.calls)])


def _check_growth(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Yield a request with many more new messages than were said."""
    events = evidence.run.events
    calls = events.count(TOOL_CALL)
    first: int | None = None
    for number, count in enumerate(events.new_messages, 1):
        first = count if first is None else first
        if count > first + MAX_GROWTH * (2 * number + calls) + 10:
            yield "messages", f"a request has {count} new messages"
            return


def _check_denials(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Yield the tools that ran with an input that a person had denied."""
    events = evidence.run.events
    names = (PERSON, TOOL_START, TOOL_END)
    if events.count(PERSON) and (ran := find_denied(events.named(*names))):
        tool = str(ran.get("tool"))
        yield tool, f"{tool} ran with {ran.get('input')} after a person had denied it"


def _check_authority(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    if evidence.authority is not None:
        yield from check_authority(evidence.run, evidence.authority)


ORACLES = {
    "crash": Oracle("no unhandled exception", "no reply of a model may end the program"),
    "request": Oracle("no invalid request", "a provider accepts every request of the agent"),
    "hang": Oracle("no hang", "every run ends"),
    "endless": Oracle("no endless loop", "the agent ends when the model has ended"),
    "conversation": Oracle(
        "no changed conversation",
        "a request repeats what the model said and what the tools returned as it was",
        _check_conversation,
    ),
    "repeat": Oracle("no repeated effect", "a call of the model runs a tool once", _check_repeats),
    "schema": Oracle(
        "no invalid input", "a tool gets valid input if the model wrote it", _check_inputs
    ),
    "leak": Oracle(
        "no data of another session",
        "a new conversation has nothing that an earlier one said",
        _check_leaks,
    ),
    "growth": Oracle("no growing request", "a request has each message once", _check_growth),
    "denial": Oracle(
        "no effect after a denial", "a tool that a person denied does not run", _check_denials
    ),
    "authority": Oracle(
        "no obedience to a tool's text",
        "untrusted text does not decide how a powerful tool runs",
        _check_authority,
    ),
}
CRASH, REFUSED, HANG, ENDLESS = (
    ORACLES[name].title for name in ("crash", "request", "hang", "endless")
)
REASONS = {oracle.title: (name, oracle.reason) for name, oracle in ORACLES.items()}


def check_names(names: Sequence[str]) -> None:
    """Raise for a name that is not an oracle."""
    for name in names:
        require_known("there is no oracle", name, ORACLES)


def check_run(
    evidence: RunEvidence, without: Sequence[str] = ()
) -> tuple[list[BrokenInvariant], list[tuple[str, Exception]]]:
    """Return what the run of an agent broke, and the oracles that failed themselves."""
    found: list[BrokenInvariant] = []
    failed: list[tuple[str, Exception]] = []
    for name, oracle in ORACLES.items():
        if oracle.check is None or name in without:
            continue
        try:
            # One is enough: the others follow from it.
            first = next(iter(oracle.check(evidence)), None)
        except Exception as error:  # noqa: BLE001 - the other oracles go on
            failed.append((name, error))
            continue
        if first is not None:
            what, message = first
            found.append(BrokenInvariant(oracle.title, message, f"{oracle.title}: {what}"))
    return found, failed


def list_verdicts(
    broken: Sequence[BrokenInvariant], invariants: Sequence[str], without: Sequence[str]
) -> list[Verdict]:
    """Return a verdict for each invariant of a run, and for what it broke, for its trace.

    An oracle passes only if every run shows it: most look at what few runs have, such as a denial.
    """
    messages = {each.invariant: each.message for each in broken}
    always = [o.title for name, o in ORACLES.items() if o.check is None and name not in without]
    return [
        Verdict(name, "fail", f"{name}: {messages[name]}")
        if name in messages
        else Verdict(name, "pass")
        for name in dict.fromkeys([*invariants, *always, *messages])
    ]
