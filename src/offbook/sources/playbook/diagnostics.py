"""The errors of a running playbook.

Each begins with the fact and continues with expected, got, remaining and fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import (
    ScriptExhausted,
    ScriptMismatch,
    ScriptUnfinished,
    did_you_mean,
)
from offbook.exchange.messages import written_text
from offbook.secrets import outgoing
from offbook.sources.playbook.actions import (
    PARAMS_LIMIT,
    TEXT_LIMIT,
    Call,
    Person,
    Role,
    RoleConditions,
    Step,
    Turn,
    cut_text,
    read_head,
    turn_location,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from offbook.exchange.model import Request
    from offbook.exchange.people import PersonQuestion

STEPS_SHOWN = 5
SIMILAR = 0.5  # two lines, one of which was meant to be the other


def no_matching_role_error(
    roles: list[Role], request: Request, others: Collection[RoleConditions]
) -> ScriptMismatch:
    """Return the error for a request that neither a turn nor a role answers."""
    lines = [f'  system: "{cut_text(request.system)}"']
    if roles:
        from offbook.trace.matching import similarity

        # The nearest role is the one whose failed conditions resemble the request most.
        def distance(role: Role) -> float:
            return sum(
                1 - similarity(str(expected), str(got)[:500])
                for _, expected, got in role.mismatches(request)
            )

        nearest = min(roles, key=distance)
        lines.append(f"  nearest role: {nearest.name!r}")
        lines += [
            f"    its {name} {cut_text(repr(expected))} is not in {cut_text(repr(got))}"
            for name, expected, got in nearest.mismatches(request)
        ]
    else:
        lines.append("  roles: none")
    added = suggest_role(request, others) or "a role(…) for it"
    lines.append(f"  fix: add {added}" + ", or change the nearest role" * bool(roles))
    return ScriptMismatch(
        f"no turn or role matches this request: {describe_request(request)}", hint="\n".join(lines)
    )


def unexpected_prompt_error(
    prompt: str, turns: Sequence[Turn], request: Request, others: Collection[RoleConditions]
) -> ScriptMismatch:
    """Return the error for a prompt that is not the next turn's; `turns` are the open ones."""
    texts = [turn.text for turn in turns]
    added = suggest_role(request, others) or "a role(…)"
    # A turn out of order is the likelier mistake than a misspelt prompt.
    later = next((turn for turn in turns if turn.text in prompt), None)
    close = did_you_mean(prompt, texts)
    nearest = f"{turn_location(later)} comes later" if later else close
    return ScriptMismatch(
        "the prompt does not match the next turn",
        where=turn_location(turns[0]),
        hint="\n".join(
            (
                f"  expected: a user message that contains {cut_text(texts[0], PARAMS_LIMIT)!r}",
                f"  got: {describe_request(request)}",
                *_compare_lines(texts[0], prompt),
                *([f"  nearest: {nearest}"] if not nearest.startswith("available") else []),
                "  fix: change the prompt or the playbook, or, for a side request, add",
                f"    {added}",
            )
        ),
    )


def _compare_lines(expected: str, prompt: str) -> Iterator[str]:
    """Yield the first expected line that a long message lacks, and its nearest line there."""
    lines = prompt.splitlines()
    if len(prompt) <= TEXT_LIMIT and len(lines) < 2:  # noqa: PLR2004 - it is shown whole
        return
    from offbook.trace.matching import shorten_sides, similarity

    missing = next((line for line in expected.splitlines() if line and line not in prompt), "")
    width = max(1, len(missing))
    pieces = [
        (number, line[start : start + 2 * width])
        for number, line in enumerate(lines, 1)
        for start in range(0, max(1, len(line) - width), width)
    ]
    scores = [similarity(missing, piece) for _, piece in pieces]
    if not missing or max(scores, default=0) < SIMILAR:
        return
    number, piece = pieces[scores.index(max(scores))]
    sides = shorten_sides(missing, piece.strip())
    yield f"  expected line: {sides[0]}"
    yield f"  nearest, line {number} of the message: {sides[1]}"


def exhausted_error(
    last: Step | None,
    location: str,
    remaining: Sequence[Step],
    request: Request,
    others: Collection[RoleConditions],
) -> ScriptExhausted:
    """Return the error for a request after the last step of a turn or role."""
    what = f"the agent sent another request after step {last}"
    fix = "end the turn with say(…), or script what the model does next"
    if last is None:
        what = "the agent sent a request before any step"
        fix = f"add {suggest_role(request, others) or 'say(…)'}"
    elif last.is_answer:
        what = f"the turn ended with step {last}, then the agent sent another request"
        # Another conversation, such as a title or a summary, gets a role; a further request of the
        # same one gets a further answer.
        added = suggest_role(request, others)
        fix = f"add {added}" if added else f"add say(…) after step {last.number}, or a when(…)"
    return ScriptExhausted(
        f"playbook exhausted: {what}",
        where=location,
        hint="\n".join(
            (
                f"  expected: nothing more in {location}",
                f"  got: {describe_request(request)}",
                *_list_steps(remaining),
                f"  fix: {fix}",
            )
        ),
    )


def invalid_arguments_error(step: Step, action: Call, problem: str) -> ScriptMismatch:
    """Return the error for arguments that the schema forbids, or allows with `invalid=True`."""
    fact = f"the schema of {action.tool!r} forbids the arguments of step {step}: {problem}"
    hint = "correct the arguments; for a model that errs on purpose, add invalid=True to the call"
    if action.invalid:
        fact = f"the schema of {action.tool!r} allows the arguments of step {step}"
        hint = "remove invalid=True"
    return ScriptMismatch(fact, where=step.location, hint=hint)


def unknown_tool_error(
    step: Step, action: Call, request: Request, others: Collection[RoleConditions]
) -> ScriptMismatch:
    """Return the error for a call whose tool is not offered, or is offered with `unknown=True`."""
    tool = action.tool
    if action.unknown:
        fact, hint = f"offers {tool!r}, which is scripted as unknown", "remove unknown=True"
    else:
        fact = f"does not offer {tool!r}"
        nearest = did_you_mean(tool, request.tool_names) if request.tools else "it offers no tools"
        hint = f"{nearest}; to script a tool that does not exist, add unknown=True to the call"
        own = read_head(request)
        added = suggest_role(request, [other for other in others if other != own])
        if not request.tools and added:
            # Such as a title, before or between the requests of the agent's work.
            hint += f"; for a side request, add\n    {added}"
    return ScriptMismatch(
        f"the agent {fact}: step {step}",
        where=step.location,
        hint=f"{hint}\n  got: {describe_request(request)}",
    )


def answered_error(step: Step, tool: str, request: Request) -> ScriptMismatch:
    """Return the error for a call with `unanswered=True` whose result came back in its turn."""
    return ScriptMismatch(
        f"the agent sent the result of {tool}, which is scripted as unanswered: step {step}",
        where=step.location,
        hint=f"remove unanswered=True\n  got: {describe_request(request)}",
    )


def unfinished_error(
    remaining: Sequence[Step], consumed: int, last: Step | None, unanswered: Sequence[str]
) -> ScriptUnfinished:
    """Return the error for steps that were never requested; `unanswered` tools sent no result."""
    number = len(remaining)
    asks = isinstance(remaining[0].actions[0], Person)
    fix = "remove the steps that are never reached, or find out why the agent stopped"
    if last is not None and last.location == remaining[0].location and last.is_answer:
        fix = "most agents stop at a text: put the rest before the say(…), or into its own when(…)"
    return ScriptUnfinished(
        f"playbook not fully consumed: {number} action{'s' * (number != 1)} remaining",
        where=remaining[0].location,
        hint="\n".join(
            (
                f"  consumed: {consumed} of {consumed + number}",
                f"  expected: a {'question' if asks else 'request'} for step {remaining[0]}",
                "  got: the agent stopped "
                + (f"after step {last}" if last else "before the first step")
                + (f", and sent no result of {' and '.join(unanswered)}" if unanswered else ""),
                *_list_steps(remaining),
                f"  fix: {fix}",
            )
        ),
    )


def person_not_asked_error(step: Step, request: Request) -> ScriptMismatch:
    """Return the error for a request to the model where a person was to be asked."""
    return ScriptMismatch(
        f"the agent went on and asked no person: step {step}",
        where=step.location,
        hint=f"let the agent ask, or remove the step\n  got: {describe_request(request)}",
    )


def unanswered_question_error(
    question: PersonQuestion, waiting: Sequence[Step], location: str
) -> ScriptMismatch:
    """Return the error for a question to a person that the script does not answer."""
    about = question.tool or question.text[:40]
    lines = [f"  waiting: step {step}" for step in waiting]
    what = "an approval of" if question.tool else "a person"
    return ScriptMismatch(
        f"the agent asked {what} {question}, and no person(…) of the script answers it",
        where=location,
        hint="\n".join([f"add person({about!r}, allow), with deny or a text", *lines]),
    )


def missing_exception_error(step: Step, call: Call) -> ScriptUnfinished:
    """Return the error for a tool that was expected to raise and did not."""
    kinds = call.raises if isinstance(call.raises, tuple) else (call.raises,)
    names = " or ".join(kind.__name__ for kind in kinds if kind is not None)
    return ScriptUnfinished(
        f"call {call.tool} was expected to raise {names}, and no such exception was seen",
        where=step.location,
        hint="  fix: remove raises=; only the tools of a framework's agent can be seen to raise",
    )


def _list_steps(steps: Sequence[Step]) -> list[str]:
    if not steps:
        return ["  remaining: nothing"]
    lines = ["  remaining:", *(f"    {step}" for step in steps[:STEPS_SHOWN])]
    more = len(steps) - STEPS_SHOWN
    return [*lines, f"    ... +{more} more"] if more > 0 else lines


def describe_request(request: Request) -> str:
    """Render the newest message of a request in one line, with the prompt if it is another one."""
    prompt = cut_text(request.latest_prompt)
    # Claude Code adds system messages after the prompt.
    new = [message for message in request.new_messages if message.role != "system"]
    if not new:  # the model spoke last, as in a request to continue its message
        return f'a request with nothing new in it, after the prompt "{prompt}"'
    message = new[-1]
    if message.results:
        result = message.results[-1]
        kind = "an error" if result.failed else "a result"
        name = result.name or "a tool"
        return f'{kind} of {name}: "{cut_text(result.text)}", after the prompt "{prompt}"'
    if not (text := written_text(message)):
        return f'a message of the client alone, after the prompt "{prompt}"'
    return f'a user message: "{_skip_rules(text)}"'


def _skip_rules(text: str) -> str:
    """Return the beginning of a text, without the lines of dashes at its start if it is cut."""
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if any(map(str.isalnum, line))), 0)
    if not first or len(text) <= TEXT_LIMIT:
        return cut_text(text)
    return f"… {cut_text(chr(10).join(lines[first:]))}"


# --- The `role(…)` line that a message shows for a request that the script did not expect.
# Its conditions match this request and none of the requests before it.

EXCERPT_LENGTH = 50  # of a text in a condition
MIN_EXCERPT_LENGTH = 4  # shorter lines, such as a bracket, say nothing about a request


def suggest_role(request: Request, others: Iterable[RoleConditions]) -> str:
    """Return a role that matches this request and no other, or "" if it differs in nothing."""
    head = read_head(request)
    rivals = list(others)
    conditions: list[str] = []
    for name in ("system", "first", "model"):
        # The line that tells the request from most of the others.
        best, left = "", rivals
        for text in _excerpts(getattr(head, name)):
            matched = [rival for rival in rivals if text in getattr(rival, name)]
            if len(matched) < len(left) or (not best and not rivals):
                best, left = text, matched
        if best:
            conditions.append(f"{name}={best!r}")
            rivals = left
        if conditions and not rivals:
            return f'role("side request", [say("…")], {", ".join(conditions)})'
    for tool in head.tools:
        left = [rival for rival in rivals if tool in rival.tools]
        if len(left) < len(rivals):
            conditions.append(f"tools=[{tool!r}]")
            rivals = left
            break
    return "" if rivals else f'role("side request", [say("…")], {", ".join(conditions)})'


def _excerpts(text: str) -> Iterator[str]:
    """Yield the beginnings of the lines of a text."""
    for line in text.splitlines():
        start = outgoing(line.strip())[:EXCERPT_LENGTH].rstrip()
        if len(start) >= MIN_EXCERPT_LENGTH and any(map(str.isalnum, start)):
            yield start
