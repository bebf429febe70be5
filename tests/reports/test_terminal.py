"""A trace is rendered as a tree, whatever events it contains."""

import io
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook import call, fail, say, session, think, when
from offbook.errors import ScriptUnfinished
from offbook.reports import MAX_CHILDREN, TraceTree, print_lines, render_last_lines, render_line
from offbook.trace import Event, Events

NamedEvent = tuple[str, dict[str, Any]]


def tree_of(*events: NamedEvent, full: bool = False) -> list[str]:
    numbered = [Event(0, name, data, seq) for seq, (name, data) in enumerate(events, 1)]
    return [render_line(line) for line in TraceTree(full=full).render(numbered)]


def guarded(api: Any) -> None:
    @api.on("tool_call")
    def guard(moment: Any, ctx: Any) -> Any:
        return {"block": True, "reason": "not that"} if "rm" in str(moment.input) else None

    @api.tool("ask")
    async def ask(params: Any, ctx: Any) -> str:
        return f"it was {await ctx.ui.select('Which?', ['a', 'b'])}"

    @api.command("greet")
    def greet(args: str, ctx: Any) -> None:
        ctx.ui.notify(f"hello {args}")


def test_the_cells_of_a_pattern_have_one_line_each():
    assert tree_of(
        ("cell.send", {"stream": "counter.add", "event": {"by": 2}, "by": "test.py:3"}),
        ("cell.handle", {"stream": "counter.add", "event": None}),
        ("cell.write", {"cell": "counter.value", "value": 2, "by": "handler counter.add"}),
        ("cell.compute", {"computed": "counter.half", "error": "ZeroDivisionError()"}),
        ("cell.cancel", {"stream": "counter.add", "by": "handler stop"}),
        ("cell.error", {"error": "ValueError('no')", "where": "in the handler counter.add"}),
    ) == [
        'send counter.add {"by":2} (test.py:3)',
        "handle counter.add",
        "write counter.value 2 (handler counter.add)",
        "compute counter.half ZeroDivisionError()",
        "cancel counter.add (handler stop)",
        "error ValueError('no') in the handler counter.add",
    ]


def test_a_session_is_rendered_with_turns_calls_and_results():
    with session(extensions=[guarded], mock_tools={"read": "a file"}) as rehearsal:
        rehearsal.run(
            when(
                "Go",
                [
                    think("Let me see."),
                    [call("read", {"path": "x"}), call("ask"), say("Both.")],
                    call("bash", {"command": "rm x"}),
                    say("Done."),
                ],
            ),
            when("/greet Ada", []),
        )
        lines = [render_line(line) for line in TraceTree().render(rehearsal.events.all)]
    assert lines == [
        "extension guarded",
        "run 1 · session · 2 turns",
        '├─ user "Go"',
        '│  ├─ 1. says "Both."',
        '│  │  ├─ thinks "Let me see."',
        '│  │  ├─ call read {"path":"x"}',
        "│  │  │  └─ → a file (mocked)",
        "│  │  ├─ call ask {}",
        "│  │  │  └─ → it was a",
        '│  │  └─ ui select "Which?" ["a","b"] → "a"',
        '│  ├─ 2. call bash {"command":"rm x"}',
        "│  │  └─ blocked: not that",
        '│  └─ 3. says "Done."',
        "├─ command /greet Ada",
        '├─ ui notify "hello Ada" "info"',
        "├─ ✓ playbook consumed",
        "└─ passed",
    ]


@pytest.mark.parametrize(
    "output, line",
    [
        (None, "├─ the agent returned nothing"),
        ("Something else.", '├─ the agent returned "Something else."'),
        ({"type": "list"}, "├─ the agent returned a value of type list"),
        ("Hi.", None),
    ],
    ids=["nothing", "another text", "no text", "what the model said"],
)
def test_an_answer_that_the_model_did_not_say_is_rendered(output: object, line: str | None):
    with session() as rehearsal:
        rehearsal.run(when("Go", [say("Hi.")]))
        *events, end = rehearsal.events.all
    end = msgspec.structs.replace(end, data={"ok": True, "output": output})
    lines = [render_line(line) for line in TraceTree().render([*events, end])]
    assert [text for text in lines if "returned" in text] == ([] if line is None else [line])


def test_a_provider_error_and_a_failed_run_are_rendered():
    with session() as rehearsal:
        with pytest.raises(ScriptUnfinished):
            rehearsal.run(when("Go", [fail("too busy"), say("Never.")]))
        lines = [render_line(line) for line in TraceTree().render(rehearsal.events.all)]
    assert "│  ├─ model error: too busy (529 overloaded)" in lines
    assert "│  ├─ agent error: too busy (529 overloaded)" in lines
    assert "│  └─ the agent stopped: error" in lines
    assert "├─ ✗ playbook consumed" in lines
    assert any(line.startswith("└─ failed: ScriptUnfinished: ") for line in lines)
    assert sum("playbook not fully consumed" in line for line in lines) == 1
    assert lines[-1].strip().startswith("fix: ")


def test_hooks_are_rendered_where_they_were_called():
    def look(moment: Any, ctx: Any) -> None:
        pass

    def curious(api: Any) -> None:
        for moment in ["session_start", "agent_start", "turn_start", "turn_end", "agent_end"]:
            api.on(moment)(look)

    with session(extensions=[curious]) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))
        lines = [render_line(line) for line in TraceTree().render(rehearsal.events.all)]
    assert [line for line in lines if "hook " in line or "says" in line] == [
        "hook session_start",
        "│  ├─ hook agent_start",
        "│  ├─ hook turn_start",
        '│  ├─ 1. says "Done."',
        "│  │  └─ hook turn_end",
        "│  └─ hook agent_end",
    ]


CALL: tuple[str, dict[str, Any]] = (
    "tool.call",
    {"call_id": "1", "tool": "bash", "input": {}, "step": 1},
)
RESULT: NamedEvent = (
    "tool.result",
    {"call_id": "1", "tool": "bash", "content": [{"type": "text", "text": "hi"}]},
)
REPLY = ("model.reply", {"blocks": [{"type": "tool_call", "id": "1", "name": "bash"}], "step": 1})
ASKED = (
    "model.request",
    {"new": [{"role": "user", "blocks": [{"type": "text", "text": "Summarize"}]}]},
)

SHAPES: dict[str, tuple[list[NamedEvent], list[str]]] = {
    "a run that was killed": (
        [("_meta.run_start", {"subject": "session", "turns": 2}), REPLY, CALL],
        [
            "run 1 · session · 2 turns",
            "├─ 1. call bash {}",
            "└─ the trace ends here, before the end of the run: it was killed, or still runs",
        ],
    ),
    "a request that opens a turn": (
        [ASKED, REPLY, RESULT],
        ['user "Summarize"', "└─ 1. call bash {}", "   └─ → hi"],
    ),
    "a request of a subagent while a tool works": (
        [REPLY, ASKED, ("model.reply", {"blocks": [], "step": 2}), RESULT],
        ["1. call bash {}", 'asks meanwhile "Summarize"', '2. says ""', "bash → hi"],
    ),
    "a prompt between texts of the client": (
        [
            (
                "model.request",
                {
                    "new": [
                        {
                            "role": "user",
                            "blocks": [
                                {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                                {"type": "text", "text": "Refund order 7"},
                            ],
                        },
                    ]
                },
            ),
        ],
        ['user "Refund order 7"'],
    ),
    "a message of the client alone": (
        [
            (
                "model.request",
                {
                    "new": [
                        {
                            "role": "user",
                            "blocks": [
                                {
                                    "type": "text",
                                    "text": "<environment_context>x</environment_context>",
                                }
                            ],
                        },
                    ]
                },
            ),
        ],
        [],
    ),
    "an error of an agent": (
        [("agent.error", {"error": "TypeError: no"})],
        ["agent error: TypeError: no"],
    ),
    "an error without a message": ([("agent.error", {})], ["agent error: no message"]),
    "a role": (
        [("model.reply", {"blocks": [{"type": "text", "text": "Tea"}], "role": "titles"})],
        ['titles says "Tea"'],
    ),
    "an error result": (
        [CALL, ("tool.result", {**RESULT[1], "is_error": True, "mocked": True})],
        ["call bash {}", "└─ → error hi (mocked)"],
    ),
    "a call that no reply announced": ([CALL, RESULT], ["call bash {}", "└─ → hi"]),
    "a result without its call": ([RESULT], ["bash → hi"]),
    "an empty result": (
        [CALL, ("tool.result", {"call_id": "1", "tool": "bash", "content": []})],
        ["call bash {}", "└─ → (nothing)"],
    ),
    "a host call": (
        [("host.call", {"capability": "clock", "operation": "now", "result": 7})],
        ["host clock.now {} → 7"],
    ),
    "a refused host call": (
        [("host.call", {"capability": "clock", "operation": "now", "error": "no mock"})],
        ["host clock.now {} error: no mock"],
    ),
    "an event of another tool": ([("cell.ready", {"name": "a"})], ['cell.ready {"name":"a"}']),
    "an event without data": ([("handoff", {})], ["handoff"]),
    "a run end alone": ([("_meta.run_end", {"ok": True})], ["passed"]),
    "data without the shape of its name": (
        [("model.reply", {"blocks": "no list"})],
        ['model.reply {"blocks":"no list"}'],
    ),
    "verdicts of all kinds": (
        [
            ("check.verdict", {"check": "budget", "status": status, "message": "why"})
            for status in ["pass", "fail", "warn", "no_data", "error"]
        ],
        [f"{mark} budget: why" for mark in "✓✗!?✗"],
    ),
    "a verdict whose message does not have the values": (
        [
            (
                "check.verdict",
                {"check": "total", "status": "fail", "message": "no", "expected": 3, "actual": 4},
            )
        ],
        ["✗ total: no", "├─ expected 3", "└─ got 4"],
    ),
    "a verdict whose message has the values": (
        [
            (
                "check.verdict",
                {
                    "check": "file",
                    "status": "fail",
                    "message": "expected 'a', got 'b'",
                    "expected": "a",
                    "actual": "b",
                },
            )
        ],
        ["✗ file: expected 'a', got 'b'"],
    ),
    "a loop with two hats": (
        [
            ("_meta.run_start", {"subject": "loop"}),
            ("_meta.loop_start", {"max_iterations": 5}),
            ("_meta.iteration", {"n": 1, "hat": "planner"}),
            ("process.output", {"stream": "stdout", "text": "thinking"}),
            ("bus.publish", {"topic": "build.done", "payload": "ok", "source": "planner"}),
            ("_meta.iteration", {"n": 2, "hat": "builder"}),
            ASKED,
            REPLY,
            ("iteration.summary", {"cost_usd": 0.25}),
            ("_meta.termination", {"reason": "MaxIterations", "iterations": 2, "exit_code": 2}),
            ("_meta.run_end", {"ok": True}),
        ],
        [
            "run 1 · loop",
            "├─ loop · at most 5 iterations",
            "├─ iteration 1 · planner",
            '│  ├─ stdout "thinking"',
            '│  ├─ planner publishes build.done "ok"',
            "│  └─ end of the iteration",
            "├─ iteration 2 · builder",
            '│  ├─ user "Summarize"',
            "│  │  ├─ 1. call bash {}",
            "│  │  └─ cost $0.2500",
            "│  └─ end of the iteration",
            "├─ ended: MaxIterations · 2 iterations · exit code 2",
            "└─ passed",
        ],
    ),
    "a model call in a step": (
        [
            ("step.pre", {"persona": "captain", "step_name": "plan", "args": [42]}),
            REPLY,
            ("step.post", {"persona": "captain", "step_name": "plan", "output": "ok"}),
            ("step.pre", {"persona": "captain", "step_name": "act"}),
            RESULT,
            ("step.post", {"persona": "captain", "step_name": "act", "error": "no"}),
        ],
        [
            "step captain.plan 42",
            "├─ 1. call bash {}",
            "│  └─ → hi",
            '└─ → "ok"',
            "step captain.act",
            "└─ → error no",
        ],
    ),
    "two steps at the same time": (
        [
            ("step.pre", {"step_name": "a"}),
            ("step.pre", {"step_name": "b"}),
            REPLY,
            ("step.post", {"step_name": "b", "output": 1}),
            ("step.post", {"step_name": "a", "output": 2}),
        ],
        ["step a", "step b", "1. call bash {}", "step b → 1", "step a → 2"],
    ),
    "a process": (
        [
            ("process.start", {"command": ["npm", "test"]}),
            ("ux.terminal.write", {"bytes": "aGkbWzJK"}),
            ("process.exit", {"code": -9, "timed_out": True, "leaked": [7]}),
        ],
        [
            "process npm test",
            'stdout "hi␛[2J"',
            "process stopped: timed out, exit code -9, processes left behind",
        ],
    ),
    "a terminal write without bytes": (
        [("ux.terminal.write", {"bytes": "%"})],
        ['ux.terminal.write {"bytes":"%"}'],
    ),
    "escape sequences": (
        [CALL, ("tool.blocked", {"call_id": "1", "tool": "bash", "reason": "\x1b[2J\x07"})],
        ["call bash {}", "└─ blocked: ␛[2J␇"],
    ),
}


@pytest.mark.parametrize("events, lines", SHAPES.values(), ids=SHAPES)
def test_each_event_has_its_line(events: list[NamedEvent], lines: list[str]):
    assert tree_of(*events) == lines


def test_times_add_durations_tokens_and_costs():
    usage = {"usage": {"input": 1200, "output": 7}, "exchange": "x1"}
    named: list[tuple[int, NamedEvent]] = [
        (0, ("_meta.run_start", {"subject": "loop"})),
        (0, ("_meta.iteration", {"n": 1, "hat": "builder"})),
        (100, ("model.request", {"exchange": "x1", "new": []})),
        (140, (REPLY[0], {**REPLY[1], **usage})),
        (140, CALL),
        (2640, RESULT),
        (2640, ("iteration.summary", {"cost_usd": 0.25})),
        (2650, ("_meta.termination", {"reason": "Stopped", "iterations": 1, "exit_code": 1})),
        (75_000, ("_meta.run_end", {"ok": False, "error": "stopped"})),
    ]
    events = [Event(ts, name, data) for ts, (name, data) in named]
    assert [render_line(line) for line in TraceTree(times=True).render(events)] == [
        "run 1 · loop",
        "├─ iteration 1 · builder",
        "│  ├─ 1. call bash {} · 40 ms · 1,200 + 7 tokens",
        "│  │  └─ → hi · 2.5 s",
        "│  ├─ cost $0.2500",
        "│  └─ end of the iteration · 2.6 s · 1 model call · 1,200 + 7 tokens · $0.2500",
        "├─ ended: Stopped · 1 iteration · exit code 1",
        "└─ failed · 1 min 15 s · 1 model call · 1,200 + 7 tokens · $0.2500: stopped",
    ]


def test_a_failed_verdict_in_a_run_keeps_its_whole_message_unless_brief():
    verdict = {"check": "diff", "status": "fail", "message": "differs\n- a\n+ b"}
    run: list[NamedEvent] = [("_meta.run_start", {"subject": "x"}), ("check.verdict", verdict)]
    events = [Event(0, *each) for each in run]
    whole, brief = (
        [render_line(line).strip("├─│└ ") for line in TraceTree(brief=brief).render(events)]
        for brief in (False, True)
    )
    assert whole[1:4] == ["✗ diff: differs", "- a", "+ b"]
    assert brief[1] == "✗ diff: differs"
    assert brief[2].startswith("the trace ends here")


def test_a_long_text_is_shortened_unless_full():
    text = "word " * 100 + "\nlast"
    reply = ("model.reply", {"blocks": [{"type": "text", "text": text}], "step": 1})
    brief, whole = tree_of(reply), tree_of(reply, full=True)
    assert len(brief) == 1
    assert brief[0].endswith('…"')
    assert len(whole) == 2
    assert whole[1] == '   last"'


def test_many_events_below_one_message_are_rendered_in_parts():
    shown = [("ui.notify", {"method": "notify", "args": [at]}) for at in range(MAX_CHILDREN + 10)]
    lines = tree_of(REPLY, *shown)
    assert len(lines) == 1 + MAX_CHILDREN + 1 + 10
    assert "… continued" in lines


def test_a_long_trace_is_rendered_while_it_is_read():
    """Lines are yielded before the events end: the tree keeps one message, not the trace."""
    tree, seen = TraceTree(), 0

    def events() -> Iterator[Event]:
        for seq in range(1, 3001):
            yield Event(0, *REPLY, seq)
            yield Event(0, *RESULT, seq)
            assert seen >= (seq - 2) * 2

    for _ in tree.render(events()):
        seen += 1
    assert seen == 6000


ODD: list[Any] = [
    *(None, True, 0, "", "a\nb", [], ["a"], [None], [[]], {}, {"type": "text"}),
    *([{"type": kind}] for kind in ("text", "tool_call", "thinking")),
    *([{"type": "tool_call", "id": "1", "name": "x"}], [{"role": "user"}]),
]
NAMES = """
    _meta.run_start _meta.run_end agent.start agent.end agent.error model.request model.reply
    model.error tool.call tool.result tool.blocked check.verdict ui.confirm hook.agent_end
    hook.turn_end session.command anything.else _meta.loop_start _meta.iteration
    iteration.summary _meta.termination step.pre step.post bus.publish process.start
    process.output process.exit ux.terminal.write
"""
FIELDS = """
    call_id tool blocks new content status args answer step turns prompt n hat step_name persona
    output error usage exchange cost_usd topic payload source command stream text bytes code
    expected actual message
"""
events_ = st.tuples(
    st.sampled_from(NAMES.split()),
    st.dictionaries(st.sampled_from(FIELDS.split()), st.sampled_from(ODD), max_size=4),
)


@given(st.lists(events_, max_size=12))
def test_malformed_events_do_not_break_the_tree(events: list[NamedEvent]):
    for line in tree_of(*events):
        assert "\n" not in line


def test_the_last_lines_begin_with_the_number_of_lines_before():
    events = [Event(0, "handoff", {"to": at}, at) for at in range(10)]
    assert render_last_lines(events, 3).splitlines() == [
        "… 7 lines before",
        'handoff {"to":7}',
        'handoff {"to":8}',
        'handoff {"to":9}',
    ]
    assert render_last_lines(Events([]).all, 3) == ""


def test_colours_do_not_change_the_text():
    from rich.text import Text

    lines = list(TraceTree().render([Event(0, *REPLY), Event(0, *RESULT)]))
    plain, coloured = io.StringIO(), io.StringIO()
    print_lines(lines, plain, colour=False)
    print_lines(lines, coloured, colour=True)
    assert "\x1b[" in coloured.getvalue()
    assert Text.from_ansi(coloured.getvalue()).plain.rstrip("\n") == plain.getvalue().rstrip("\n")


WIRE = (
    "model.wire",
    {
        "exchange": 1,
        "request": {"size": 21, "start": "POST /v1/chat\n\nhello"},
        "response": {"size": 12, "start": "HTTP/1.1 200"},
    },
)


def test_the_bytes_of_an_exchange_are_shown_in_full_only():
    (line,) = tree_of(WIRE)
    assert line.endswith("wire request 21 bytes, response 12 bytes")
    assert any("POST /v1/chat" in line for line in tree_of(WIRE, full=True))


SEEN_CALL: NamedEvent = (
    "tool.call",
    {"call_id": "1", "tool": "find", "input": {"n": 7}, "observed": True},
)
SENT_RESULT: NamedEvent = (
    "tool.result",
    {"call_id": "1", "tool": "find", "content": [{"type": "text", "text": "a lamp"}]},
)
START: NamedEvent = ("tool.start", {"call_id": "1", "tool": "find", "input": {"n": 7}})
CHANGES: dict[str, tuple[list[NamedEvent], str]] = {
    "a system prompt": (
        [("model.change", {"what": "system", "expected": "a", "got": "b", "level": "shown"})],
        'changed: another system prompt expected "a", got "b"',
    ),
    "a model": (
        [("model.change", {"what": "model", "expected": "a", "got": "b", "level": "shown"})],
        'changed: another model expected "a", got "b"',
    ),
    "parameters": (
        [("model.change", {"what": "parameters", "expected": "t=0", "got": "t=1"})],
        'changed: other parameters expected "t=0", got "t=1"',
    ),
    "tools": (
        [("model.change", {"what": "tools", "expected": "a", "got": "without a"})],
        'changed: other tools expected "a", got "without a"',
    ),
    "an invented result": ([SEEN_CALL, SENT_RESULT], "→ a lamp (the tool did not run)"),
    "a result of a tool that ran": ([SEEN_CALL, START, SENT_RESULT], "→ a lamp"),
    "another input": (
        [SEEN_CALL, ("tool.start", {**START[1], "input": {"n": 9}})],
        'runs with {"n":9}',
    ),
    "a second run": (
        [SEEN_CALL, START, ("tool.start", {**START[1], "number": 2})],
        "runs again with",
    ),
    "a run without a call": (
        [("tool.start", {**START[1], "call_id": ""})],
        'runs find {"n":7} (not called by the model)',
    ),
}


@pytest.mark.parametrize("events, line", CHANGES.values(), ids=CHANGES)
def test_what_the_agent_changed_is_a_line_of_the_tree(events: list[NamedEvent], line: str):
    *_, last = tree_of(*events)
    assert last.lstrip("│├└─ ").startswith(line)
    assert ("did not run" in last) == ("did not run" in line)
