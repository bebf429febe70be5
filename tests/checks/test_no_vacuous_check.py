"""One table of all kinds of checks: each can fail, have no data, and refuses a wrong name."""

from __future__ import annotations

import asyncio
import math
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import msgspec
import pytest

from offbook import call, drive, explore, say, session, when
from offbook.capability import load
from offbook.checks import (
    ASSERTIONS,
    AUDIT_RULES,
    FIELDS,
    KNOWN,
    ActualCall,
    Budget,
    CheckContext,
    ExpectedCall,
    Spending,
    assert_golden_transcript,
    assertion_class,
    audit_transcript,
    compare_tool_calls,
    evaluate_all,
    parse_assertion,
)
from offbook.conformance import ERROR, EXPECTED, find_cases, read_suite_settings, run_cases
from offbook.contracts import MARKER, ContractFile, Contracts
from offbook.errors import (
    CheckFailed,
    InvariantBroken,
    OffbookError,
    RequirementFailed,
    UsageError,
)
from offbook.evals import (
    METRIC_OF,
    AssertionKind,
    Evidence,
    Rubric,
    RubricKind,
    evaluate_rubric,
    parse_run_record,
)
from offbook.exchange import Reply, Request
from offbook.files import ProjectSettings, convert, read_settings
from offbook.goldens import (
    MARKERS,
    Component,
    GoldenFixture,
    GoldenScenario,
    MatchMode,
    MatchRule,
    replay_all,
)
from offbook.lint import RULES, lint_paths
from offbook.runs import Run
from offbook.sandbox import Loaded, find_unmet, verify_sandbox_install
from offbook.testing import assert_step_emitted, parse_audit_policy, require
from offbook.trace import PUBLISH, Event, Verdict
from pytest_offbook.plugin import SETTINGS
from tests.checks.test_assertions import RUN
from tests.evals.conftest import RUN as EVAL_RUN
from tests.explore.test_invariants import run_of
from tests.explore.worlds import PROMPT, Shop, broken_shop, fixed_shop

pytest_plugins = ["pytester"]
RECORD: dict[str, Any] = {
    "status": "failed",
    "output": {"text": "refused", "total": 7},
    "stages": [{"node_id": "plan", "status": "failed", "visible_text": "no plan"}],
    "tool_recordings": [{"tool_name": "bash"}],
    "hitl_questions": [{"prompt": "which branch?"}],
    "policy": {"side_effect_level": "network"},
}
Fields = dict[str, Any]


class Fails(NamedTuple):
    """The fields of an assertion that fails on the run above, and those that must be refused."""

    failing: Fields
    meaningless: list[Fields]


ASSERTED: dict[str, Fails] = {
    "exit_code": Fails({"expected": 1}, [{"expected": "0"}]),
    "termination_reason": Fails(
        {"expected": "max_iterations"}, [{"expected": ""}, {"expected": "MaxIteration"}]
    ),
    "iterations": Fails({"exact": 3}, [{}, {"min": 0}, {"max": -1}, {"min": 3, "max": 1}]),
    "duration": Fails({"max_secs": 1}, [{"max_secs": math.inf}, {"max_secs": math.nan}]),
    "cost_within": Fails({"max_dollars": 0.05}, [{"max_dollars": -1}, {"max_dollars": math.inf}]),
    "model_calls": Fails({"max": 0}, [{}, {"min": 0}, {"max": 1, "agent": ""}]),
    "file_exists": Fails({"path": "gone"}, [{"path": ""}, {"path": "."}, {"path": "./"}]),
    "file_contains": Fails(
        {"path": "a", "pattern": "other"}, [{"path": "a", "pattern": p} for p in ("", "^", ".*")]
    ),
    "file_not_contains": Fails({"path": "a", "pattern": "text"}, [{"path": "a", "pattern": ""}]),
    "scratchpad_contains": Fails({"pattern": "x"}, [{"pattern": p} for p in ("", "[", "(x)?")]),
    "snapshot_matches": Fails({"snapshot_id": "old"}, [{"snapshot_id": ""}]),
    "event_occurred": Fails(
        {"topic": "build.tsk"},
        [{"topic": ""}, *({"topic": "a", "payload_pattern": p} for p in ("", r"\w*"))],
    ),
    "event_sequence": Fails(
        {"topics": ["build.done", "task.start"]}, [{"topics": []}, {"topics": [""]}]
    ),
    "event_count": Fails(
        {"topic": "build.*", "max": 1}, [{"topic": "a"}, {"topic": "a", "min": 0}]
    ),
    "no_event": Fails({"topic": "build.*"}, [{"topic": ""}]),
    "hat_sequence": Fails({"hats": ["planner"]}, [{"hats": []}, {"hats": ["planner", ""]}]),
    "hat_transition": Fails({"from": "builder", "to": "planner"}, [{"from": "", "to": "a"}]),
    "iteration_count": Fails({"hat": "planner", "min": 2}, [{"hat": "planner"}]),
    "stdout_contains": Fails({"pattern": "Failed"}, [{"pattern": p} for p in ("", ".*", "a|")]),
    "stderr_contains": Fails({"pattern": "panic"}, [{"pattern": p} for p in ("", "$", "(?s).*")]),
    "tool_sequence": Fails({"tools": []}, [{"tools": [], "mode": "superset"}, {"tools": [""]}]),
    "tool_called": Fails(
        {"tool": "fnd"},
        [{"tool": ""}, {"tool": "a", "min": 0}, {"tool": "a", "min": 2, "max": 1}],
    ),
    "tool_never": Fails({"tool": "rm"}, [{"tool": ""}]),
    "tool_before": Fails(
        {"first": "save", "then": "find"}, [{"first": "", "then": "a"}, {"first": "a", "then": "a"}]
    ),
    "tool_status": Fails({"tool": "find", "status": "blocked"}, [{"tool": "", "status": "ok"}]),
    "record_status": Fails({"expected": "completed"}, [{"expected": ""}]),
    "record_output": Fails(
        {"contains": "done"},
        [
            {},
            {"op": "ne"},
            {"contains": ""},
            {"contains": "a", "expected": "b"},
            {"contains": "a", "op": "eq"},
            {"op": "matches", "expected": ""},
            {"op": "matches", "expected": 1},
            {"op": "matches", "expected": "["},
            {"op": "matches", "expected": ".*"},
            {"op": "in", "expected": []},
            {"op": "lt", "expected": math.inf},
            {"op": "exists", "expected": "yes"},
        ],
    ),
    "record_value": Fails(
        {"path": "/output/total", "op": "lt", "expected": 7},
        [
            {"path": "/a", "op": "ne"},
            {"path": "output.total", "expected": 7},
            {"path": "", "op": "exists"},
        ],
    ),
    "stage_status": Fails(
        {"stage": "plan", "expected": "completed"}, [{"stage": "", "expected": "completed"}]
    ),
    "stage_text": Fails({"contains": "ready"}, [{"contains": ""}]),
    "question_asked": Fails({"contains": "repository"}, [{"contains": ""}]),
    "recorded_tools": Fails({"expected": ["read"]}, [{"expected": []}, {"expected": ""}]),
    "no_recorded_tools": Fails({"expected": "bash"}, [{"expected": []}]),
    "side_effect_level": Fails({"expected": "none"}, [{"expected": "nothing"}]),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_folder(path: Path) -> CheckContext:
    (path / "a").write_text("a text")
    (path / ".agent").mkdir()
    (path / ".agent" / "scratchpad.md").write_text("## Completed\n")
    snapshots = path / ".offbook"
    snapshots.mkdir()
    (snapshots / "old.json").write_text('{"files": {"gone": "text"}}')
    return CheckContext(RUN, path, snapshots, RECORD)


class Cell(NamedTuple):
    """A use of a check in a folder of its own, and a part of the message that it must give."""

    use: Callable[[], object]
    message: str


class Kind(NamedTuple):
    """A kind of check: where it fails, where it has no data, and with a misspelt name."""

    fails: Cell
    no_data: Cell
    misspelt: Cell


def outcome(use: Callable[[], object]) -> tuple[str, str]:
    """Return whether a check passed, failed, had no data or was refused, and its message."""
    try:
        result: Any = use()
    except (CheckFailed, InvariantBroken) as error:
        return "no data" if "no data" in str(error) else "fail", str(error)
    except (OffbookError, msgspec.ValidationError, ValueError) as error:
        return "no data" if "nothing was" in str(error) else "refused", str(error)
    if isinstance(result, tuple):  # of a conformance run
        return cast("tuple[str, str]", result)
    verdicts = [verdict for verdict in result if isinstance(verdict, Verdict)]
    statuses = {verdict.status.replace("no_data", "no data") for verdict in verdicts}
    return "/".join(sorted(statuses)), "; ".join(verdict.message for verdict in verdicts)


# --- Assertions


def assertion(name: str) -> Kind:
    fields = {"type": name, **ASSERTED[name].failing}
    first = assertion_class(name).__struct_encode_fields__[0]
    return Kind(
        Cell(lambda: evaluate_all([fields], run_folder(Path.cwd())), ""),
        Cell(lambda: evaluate_all([fields], CheckContext([])), "no data: "),
        Cell(lambda: parse_assertion({**fields, f"{first}x": 1}), f"did you mean '{first}'"),
    )


# --- Audit rules

END: Any = ("agent.end", {})
REQUESTED: Any = ("model.request", {})
READ: Any = ("tool.call", {"tool": "read", "input": {}})
FORCE = [{"name": "read"}]
STATES = [
    {"step": "read", "tools": [{"name": "read"}], "merge_action": True},
    {"step": "end", "events": ["agent.end"], "required": True},
]
PLANNED = ("plan", {"plan": {"approval_required": True}})
# The settings of a rule, events with an error, and events that it has no data of.
AUDITED: dict[str, tuple[Fields, list[Any], list[Any]]] = {
    "stuck": ({}, [("agent.loop_stuck", {})], [READ]),
    "repeated_read": ({}, [READ, READ], [END]),
    "bad_wait": ({"tools": FORCE}, [READ, REQUESTED], [END]),
    "approval": ({"tools": FORCE}, [READ], [END]),
    "forbidden": ({"tools": FORCE}, [READ], [END]),
    "structured_output": ({}, [("plan", {"plan": "a text"})], [READ]),
    "plan_approval": ({}, [PLANNED], [READ]),
    "verification": ({}, [READ], [REQUESTED]),
    "complete": ({}, [READ], []),
    "steps": ({"expected": ["end"]}, [READ], []),
    "budget": ({"max_tool_calls": 0}, [READ], [END]),
}
ONLY_WARN = {"bad_wait", "complete"}


def audit(name: str, settings: Fields, named: list[Any]) -> list[Verdict]:
    rules = [{"rule": name, **settings}]
    if name in ONLY_WARN:  # no policy by themselves
        rules.append({"rule": "budget", "max_tool_calls": 9})
    events = [Event(0, event, data, seq) for seq, (event, data) in enumerate(named)]
    verdicts = audit_transcript(events, {"rules": rules, "states": STATES}).verdicts()
    own = [verdict for verdict in verdicts if verdict.check != "audit budget" or name == "budget"]
    return [
        Verdict(v.check, "fail", v.message) if v.status == "warn" and name in ONLY_WARN else v
        for v in own
    ]


def audit_rule(name: str) -> Kind:
    settings, failing, empty = AUDITED[name]
    reason = "no data: " if empty else "no data: the transcript has no events"
    return Kind(
        Cell(lambda: audit(name, settings, failing), ""),
        Cell(lambda: audit(name, settings, empty), reason),
        Cell(lambda: audit(f"{name}x", settings, failing), f"did you mean '{name}'"),
    )


# --- Budgets, thresholds and contracts


def budget(name: str) -> Kind:
    limits = Budget(**{name: 1})
    return Kind(
        Cell(lambda: limits.check(msgspec.convert({name: 2}, Spending)), "exceeds the maximum 1"),
        Cell(lambda: limits.check(Spending()), "no data: the run has no "),
        Cell(lambda: msgspec.convert({f"{name}x": 1}, Budget), f"unknown field `{name}x`"),
    )


def rubric(evidence: Evidence, **fields: Any) -> list[Verdict]:
    return evaluate_rubric(msgspec.convert({"id": "r", **fields}, Rubric), evidence)


STORED = Evidence(parse_run_record({**EVAL_RUN, "output": "done"}, Path("run.json")))


def threshold(name: str) -> Kind:
    metric, low = METRIC_OF[name], name.startswith("max_")
    limits = {name: 1 if low else 0.9}
    bad = msgspec.structs.replace(
        STORED, metrics=msgspec.structs.replace(STORED.metrics, **{metric: 2 if low else 0.1})
    )
    return Kind(
        Cell(lambda: rubric(bad, thresholds=limits), metric),
        Cell(lambda: rubric(Evidence(), thresholds=limits), "no data: the run has no "),
        Cell(lambda: rubric(bad, thresholds={f"{name}x": 1}), f"unknown field `{name}x`"),
    )


def contract(kind: str) -> Kind:
    event = Event(0, PUBLISH, {"topic": "a", "payload": "text"})
    schema: Any = {"type": "integer"} if kind == "topics" else {"required": ["gone"]}
    pattern = "a" if kind == "topics" else event.event

    def check(schema: Any, *events: Event) -> list[Verdict]:
        given: Any = {kind: {pattern: schema}}
        contracts = Contracts(**given)
        found = [violation for event in events for violation in contracts.check(event)]
        return [
            *(Verdict(v.contract, "fail", str(v)) for v in found),
            *(Verdict(name, "no_data", f"no data: {name}") for name in contracts.unused),
        ]

    return Kind(
        Cell(lambda: check(schema, event), "the contract of "),
        Cell(lambda: check(schema), "no data: "),
        Cell(lambda: check({"typ": "object"}, event), "did you mean 'type'"),
    )


# --- Goldens of transcripts, and conformance

# A value that each sentinel does not match.
OTHER_VALUES = {"ms": "soon", "uuid": "7", "any": None, "int": 7.5, "iso8601": "now", "path": "a"}


def sentinel(name: str) -> Kind:
    text = "<re:[a-z]+>" if name == "re" else f"<{name}>"
    other = {"a": OTHER_VALUES.get(name, "7")}
    golden = partial(assert_golden_transcript, {"a": text})
    return Kind(
        Cell(lambda: golden(other), "golden transcript mismatch at $.a"),
        Cell(lambda: golden({}), "no data: the transcript is empty"),
        Cell(lambda: assert_golden_transcript({"a": f"<{name}x>"}, other), "unknown sentinel"),
    )


def conform(folder: Path, files: dict[str, str]) -> tuple[str, str]:
    for name, text in files.items():
        (folder / name).write_text(text)
    settings = read_suite_settings(folder, [f"{sys.executable} {{file}}"])
    results = list(run_cases(find_cases(folder, settings), settings))
    if not results:
        return "no data", "no case was found"
    failed = [result.message for result in results if result.failed]
    return ("fail" if failed else "pass"), "; ".join(failed)


def expectation(suffix: str) -> Kind:
    code = "print(7)" if suffix == EXPECTED else "raise SystemExit('boom')"
    files = {"a.py": code, f"a{suffix}": "8"}
    message = "the output differs" if suffix == EXPECTED else "the error does not match"
    wrong = {"a.py": code, f"a{suffix}": "8", f"b{suffix}": "8"}
    return Kind(
        Cell(lambda: conform(Path.cwd(), files), message),
        Cell(lambda: conform(Path.cwd(), {"a.py": code}), "no case was found"),
        Cell(lambda: conform(Path.cwd(), wrong), "no source file for this expectation"),
    )


# --- Evals

# By the kinds of a pack: an assertion that fails on the stored run.
RULED: dict[str, Fields] = {
    "run-status": {"expected": "failed"},
    "status": {"expected": "failed"},
    "stage-status": {"stage": "plan", "expected": "failed"},
    "visible-text-contains": {"contains": "other"},
    "hitl-question-contains": {"contains": "other"},
    "context-pack-suggestion": {"expected": "workflow"},
    "suggestion": {"expected": "workflow"},
    "tool-called": {"expected": "other"},
    "tool-never": {"expected": "read"},
    "side-effect-level": {"expected": "none"},
    "output": {"contains": "other"},
    "path": {"path": "/status", "expected": "failed"},
    "check": {"check": {"type": "record_status", "expected": "failed"}},
}


def eval_assertion(kind: str) -> Kind:
    rule = {"kind": kind, **RULED[kind]}
    suggests = "suggestion" in kind
    run = Evidence(suggestions=[]) if suggests else STORED
    return Kind(
        Cell(lambda: rubric(run, assertions=[rule]), ""),
        Cell(lambda: rubric(Evidence(), assertions=[rule]), "no data: the case has no "),
        Cell(lambda: rubric(run, assertions=[{**rule, "kind": f"{kind}x"}]), f"'{kind}x'"),
    )


def rubric_kind(kind: str) -> Kind:
    rule = {"kind": "run-status", "expected": "failed"}
    friction = kind in {"friction", "context-pack-suggestion"}
    use = partial(rubric, assertions=[rule])
    known = msgspec.structs.replace(STORED, suggestions=[]) if friction else STORED
    return Kind(
        Cell(lambda: use(known, kind=kind), "status"),
        Cell(lambda: use(Evidence(), kind=kind), "no data: the "),
        Cell(lambda: use(known, kind=f"{kind}x"), f"'{kind}x'"),
    )


# --- Invariants

LEAK = "sk-ant-api03-" + "Ab1" * 30
BROKEN: dict[str, Callable[[str], Any]] = {
    "at_most": lambda tool: explore.at_most(0, tool),
    "ends_within": lambda _: explore.ends_within(0),
    "never_before": lambda tool: explore.never_before(tool, "find_order"),
    "no_secret_in_answer": lambda _: explore.no_secret_in_answer,
}


def silent(prompt: str) -> str:
    return prompt


def invariant(name: str) -> Kind:
    make = BROKEN[name]
    search = partial(explore.explore, runs=30)
    leaks = partial(explore.no_secret_in_answer, run_of(output=LEAK), None)
    breaks = partial(search, broken_shop, PROMPT, make("refund"))
    wrong = make("refnd") if name in {"at_most", "never_before"} else no_verdict
    return Kind(
        Cell(leaks if name == "no_secret_in_answer" else breaks, ""),
        Cell(lambda: search(lambda: silent, PROMPT, make("refund")), "never called the model"),
        Cell(lambda: search(fixed_shop, PROMPT, wrong, runs=1), ""),
    )


def no_verdict(run: Run, shop: Shop) -> int:
    return 0


# --- Packages, tests and goldens


LOADED = Loaded(1, (), ("plan",), ("write",))
UNMET: Fields = {"extensions": 2, "skills": 0, "tools": ["pan"]}


def package(name: str) -> Kind:
    def compare(loaded: Loaded) -> tuple[str, str]:
        found = find_unmet(loaded, {name: UNMET[name]})
        nothing = ("no data", "the package loads nothing")
        return nothing if loaded.is_empty else ("fail" if found else "pass", "; ".join(found))

    wrong = {f"{name}x": UNMET[name]}
    return Kind(
        Cell(lambda: compare(LOADED), "expected "),
        Cell(lambda: compare(Loaded()), "loads nothing"),
        Cell(lambda: verify_sandbox_install(".", expect=wrong), f"did you mean '{name}'"),
    )


TEST = "from offbook import call, say, session, when\n\n\ndef test_it(offbook):\n"
SCRIPT = 'when("Go", [call("bash"), say("Hi.")])'
RUNS = f"    run = offbook.session().run({SCRIPT})\n"
PLAYED = "- when: Go\n  do:\n    - say: Hi.\n"
# For each rule: a file in which it finds something. `{}` is the end of the line that it reports.
LINTED: dict[str, tuple[str, str]] = {
    "OB101": ("test_a.py", "def test_it():{}\n    print(1)\n"),
    "OB102": (
        "a.py",
        "from offbook.testing import assert_steps_ran\n\nassert_steps_ran(['a']){}\n",
    ),
    "OB103": (
        "test_a.py",
        "from offbook.testing import require\n\n\ndef test_it():\n    require(x, 'a'){}\n",
    ),
    "OB104": ("test_a.py", TEST + '    call("bash").then(print){}\n    assert x\n'),
    "OB105": (
        "test_a.py",
        TEST + '    one = offbook.session(mock_tools={"read": "a"}){}\n'
        f"    assert one.run({SCRIPT}).text\n",
    ),
    "OB106": ("test_a.py", "def test_it():\n    assert True{}\n"),
    "OB107": ("test_a.py", "def test_it():\n    return\n    assert x{}\n"),
    "OB108": (
        "test_a.py",
        "def test_it():\n    try:\n        assert x{}\n    except AssertionError:\n        pass\n",
    ),
    "OB109": ("test_a.py", TEST + RUNS + '    assert run.scripted.text == "Hi."{}\n'),
    "OB110": (
        "test_a.py",
        "import pytest\n\n\ndef test_it():\n    with pytest.raises(Exception):{}\n        run()\n",
    ),
    "OB111": ("test_a.py", TEST + '    offbook.session().run(when("a", [say("b")])){}\n'),
    "OB201": ("mocks.jsonl", '{"match": "*", "text": "a"}\n{"match": "b*", "text": "c"}\n'),
    "OB202": ("mocks.jsonl", '{"match": "hi", "text": "a"}\n'),
    "OB203": ("mocks.jsonl", '{"text": "a"}\n'),
    "OB204": ("a.yaml", PLAYED),
}


def lint(code: str, file: str, text: str) -> tuple[str, str]:
    path = Path.cwd() / file
    path.write_text(text)
    found = [finding for finding in lint_paths([path]).findings if finding.code == code]
    return ("fail" if found else "pass"), "; ".join(map(str, found))


def lint_nothing() -> tuple[str, str]:
    try:
        return "pass", str(lint_paths([Path.cwd()]))
    except UsageError as error:
        return "no data", str(error)


def lint_rule(code: str) -> Kind:
    file, text = LINTED[code]
    return Kind(
        Cell(lambda: lint(code, file, text.replace("{}", "")), code),
        Cell(lint_nothing, "no Python, mock or playbook file found"),
        # A comment for another rule does not silence this one.
        Cell(lambda: lint(code, file, text.replace("{}", f"  # noqa: {code}1")), code),
    )


EMIT = [{"type": "emit", "event": {"type": "a"}}]


def replay_golden(match: Any, expect: Fields, steps: Any = EMIT) -> tuple[str, str]:
    fixture = GoldenFixture("s", "basic", steps, expect)
    scenario = GoldenScenario(fixture, Path("golden/hub/basic.jsonl"), 1, MatchRule(match))
    (result,) = asyncio.run(replay_all([scenario], lambda _: Component))
    if "nothing" in result.render():
        return "no data", result.render()
    return ("pass" if result.ok else "fail"), result.render()


def golden(match: str) -> Kind:
    other = {"event": {"type": "b"}, "context": {"sessionId": "s"}}
    nothing: Fields = {} if match == "exact" else {"events": []}
    return Kind(
        Cell(lambda: replay_golden(match, {"events": [other]}), "events[0]"),
        Cell(lambda: replay_golden(match, nothing), "nothing"),
        Cell(lambda: convert({"match": f"{match}x"}, MatchRule), f"'{match}x'"),
    )


# --- Markers and settings of a project


def run_test(pytester: pytest.Pytester, marker: str, code: str) -> tuple[str, str]:
    scope = "asyncio_default_fixture_loop_scope = function"
    pytester.makeini(f"[pytest]\noffbook_categories = true\n{scope}")
    pytester.makepyfile(f"import pytest, time\n@pytest.mark.{marker}\ndef test_it():\n    {code}")
    options = ("-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore")
    result = pytester.runpytest_inprocess(*options)
    text = result.stdout.str()
    counts = result.parseoutcomes()
    if "no data" in text or counts.get("skipped"):
        return "no data", text
    return ("refused" if "unknown marker" in text else "fail" if result.ret else "pass"), text


# The marker, a test that breaks its limit, and one without data.
MARKED = {
    MARKER: ("requests=1", "", "pass"),
    "unit": ("budget=0.01", "time.sleep(0.1)", ""),
    "replay": ("budget=0.01", "time.sleep(0.1)", ""),
    "live": ("needs=['NOT_SET_ANYWHERE']", "", "assert False"),
}


@pytest.mark.parametrize("name", [MARKER, *MARKERS])
def test_each_marker_fails_has_no_data_and_is_refused(name: str, pytester: pytest.Pytester):
    arguments, breaks, no_data = MARKED[name]
    if breaks:
        assert run_test(pytester, f"{name}({arguments})", breaks)[0] == "fail"
    if no_data:
        assert run_test(pytester, f"{name}({arguments})", no_data)[0] == "no data"
    status, text = run_test(pytester, f"{name}x({arguments})", "pass")
    assert (status, f"unknown marker '{name}x': did you mean '{name}'" in text) == ("refused", True)


def run_with(pytester: pytest.Pytester, ini: str, *options: str) -> tuple[int, str]:
    """Run one passing test without an agent; return the exit code and all output."""
    scope = "asyncio_default_fixture_loop_scope = function"
    pytester.makeini(f"[pytest]\n{scope}\n{ini}")
    pytester.makepyfile("def test_it():\n    pass")
    plain = ("-p", "no:randomly", "-p", "no:cacheprovider")
    result = pytester.runpytest_inprocess(*plain, *options)
    return int(result.ret), result.stdout.str() + result.stderr.str()


# The options that demand something of a run, with a value that has no data here, and a wrong one.
DEMANDS = {
    "--offbook-budget": (
        "requests=1",
        "requsts=1",
        "unknown key 'requsts'; did you mean 'requests'",
    ),
    "--offbook-coverage-fail-under": ("50", "nan", "expected a number from 0 to 100"),
    "--offbook-evals": ("", None, ""),
}


@pytest.mark.parametrize("option", DEMANDS)
def test_an_option_that_demands_something_has_no_data_or_is_refused(
    option: str, pytester: pytest.Pytester
):
    value, wrong, message = DEMANDS[option]
    code, text = run_with(pytester, "", *filter(None, (option, value)))
    assert (code, "no data" in text, "1 passed" in text) == (1, True, True)
    if wrong is not None:
        code, text = run_with(pytester, "", option, wrong)
        assert (code, message in text) == (int(pytest.ExitCode.USAGE_ERROR), True)


def test_evals_are_not_demanded_of_a_single_file(pytester: pytest.Pytester):
    name = "test_evals_are_not_demanded_of_a_single_file.py"
    assert run_with(pytester, "", "--offbook-evals", name)[0] == 0


@pytest.mark.parametrize("name", SETTINGS)
def test_a_misspelt_setting_of_pytest_is_refused(name: str, pytester: pytest.Pytester):
    code, text = run_with(pytester, f"{name}x = true")
    assert code == int(pytest.ExitCode.USAGE_ERROR)
    assert f"unknown setting '{name}x': did you mean '{name}'?" in text


def test_all_settings_of_the_plugin_are_known(pytestconfig: pytest.Config):
    for name in SETTINGS:
        pytestconfig.getini(name)  # raises for an unknown one
    registered: Any = pytestconfig._parser._inidict  # pyright: ignore[reportPrivateUsage]
    assert sorted(name for name in registered if name.startswith("offbook")) == sorted(SETTINGS)


@pytest.mark.parametrize("name", ProjectSettings.__struct_fields__)
def test_a_misspelt_setting_is_refused(name: str, tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(f'[tool.offbook]\n{name}x = "a"\n')
    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        read_settings(tmp_path)


# --- The table

MAKERS: dict[str, tuple[Callable[[str], Kind], Iterable[str]]] = {
    "assertion": (assertion, ASSERTIONS),
    "audit": (audit_rule, AUDIT_RULES),
    "budget": (budget, FIELDS),
    "threshold": (threshold, METRIC_OF),
    "contract": (contract, ContractFile.__struct_fields__),
    "transcript": (sentinel, KNOWN),
    "conformance": (expectation, (EXPECTED, ERROR)),
    "eval assertion": (eval_assertion, get_args(AssertionKind)),
    "rubric": (rubric_kind, get_args(RubricKind)),
    "invariant": (invariant, BROKEN),
    "sandbox": (package, UNMET),
    "lint": (lint_rule, RULES),
    "golden": (golden, get_args(MatchMode)),
}
TABLE = {f"{group} {name}": make(name) for group, (make, names) in MAKERS.items() for name in names}


def test_the_table_has_every_kind():
    assert list(ASSERTED) == list(ASSERTIONS)
    assert list(AUDITED) == list(AUDIT_RULES)
    assert list(RULED) == list(get_args(AssertionKind))
    assert set(OTHER_VALUES) | {"re"} == set(KNOWN)
    assert list(LINTED) == list(RULES)
    assert set(MARKED) == {MARKER, *MARKERS}
    others = {"Exploration", "explore", "find_values", "replay"}
    marks = {"powerful", "untrusted"}  # of tools: `tests/explore/test_authority.py` has their table
    assert set(BROKEN) == set(dir(explore)) - others - marks


@pytest.mark.parametrize("kind", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("folder")
def test_each_kind_fails_on_some_input(kind: Kind):
    status, message = outcome(kind.fails.use)
    assert status == "fail", message
    assert message
    assert kind.fails.message in message


@pytest.mark.parametrize("kind", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("folder")
def test_each_kind_has_no_data_where_nothing_was_looked_at(kind: Kind):
    status, message = outcome(kind.no_data.use)
    assert status == "no data", message
    assert kind.no_data.message in message


@pytest.mark.parametrize("kind", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("folder")
def test_each_kind_refuses_a_misspelt_name(kind: Kind):
    status, message = outcome(kind.misspelt.use)
    assert status in {"refused", "fail"}, message
    assert kind.misspelt.message in message


# --- What would check nothing


@pytest.mark.parametrize(
    "name, fields",
    [(name, fields) for name, kind in ASSERTED.items() for fields in kind.meaningless],
)
def test_what_would_check_nothing_is_refused(name: str, fields: Fields):
    with pytest.raises(UsageError, match=rf"^playbook\.yaml: {name}"):
        parse_assertion({"type": name, **fields}, "playbook.yaml")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"expect": {"tools": []}}, "expect['tools'] is empty and would check nothing"),
        ({"expect": {"extensions": True}}, "expected a number, got True"),
        ({"deadline": math.nan}, "deadline: expected a number > 0, got nan"),
        ({"smoke": []}, "smoke: expected a script"),
    ],
)
def test_a_sandbox_that_would_check_nothing_is_refused(
    options: Fields, message: str, tmp_path: Path
):
    (tmp_path / "pyproject.toml").write_text("")
    with pytest.raises(UsageError, match=re.escape(message)):
        verify_sandbox_install(tmp_path, **options)


@pytest.mark.parametrize("name", ASSERTED)
def test_a_misspelt_type_is_refused_with_the_nearest_one(name: str):
    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        parse_assertion({"type": f"{name}x", **ASSERTED[name].failing})


def test_an_assertion_made_in_python_is_refused_as_well():
    kind: Any = assertion_class("stdout_contains")
    with pytest.raises(ValueError, match="`pattern` is empty and would check nothing"):
        kind("")


# --- Audit rules and budgets


@pytest.mark.parametrize("name", AUDIT_RULES)
def test_a_rule_with_an_empty_list_or_a_negative_limit_is_refused(name: str):
    for field in msgspec.structs.fields(load(AUDIT_RULES[name])):
        value: Any = -1 if "max" in field.name else []
        if field.default in (value, ()):
            continue
        with pytest.raises(UsageError, match=f"`{field.name}` (is empty|must not be negative)"):
            parse_audit_policy({"rules": [{"rule": name, field.name: value}]})


def test_forbidden_tools_and_tool_never_have_no_data_of_the_same_run():
    events = [Event(0, "agent.end", {})]
    report = audit_transcript(events, {"rules": [{"rule": "forbidden", "tools": [{"name": "a"}]}]})
    never = evaluate_all([{"type": "tool_never", "tool": "a"}], CheckContext(events))
    assert [(v.status, v.message) for v in (*report.verdicts(), *never)] == [
        ("no_data", "no data: no tool was called")
    ] * 2


@pytest.mark.parametrize(
    "make, message",
    [
        (Budget, "a budget needs a limit"),
        (lambda: Budget(tokens=-1), "`tokens` must not be negative"),
        (lambda: Budget(cost_usd=math.inf), "`cost_usd` must be a finite number"),
        (lambda: Budget(seconds=math.nan), "`seconds` must be a finite number"),
    ],
)
def test_a_budget_that_limits_nothing_is_refused(make: Callable[[], Budget], message: str):
    with pytest.raises(ValueError, match=message):
        make()


# --- Contracts, goldens and callbacks

EVERY_TYPE = ["array", "boolean", "integer", "null", "number", "object", "string"]
# Schemas that accept everything, and such that accept every object.
EVERY_VALUE: list[Fields] = [
    {},
    {"title": "a text"},
    {"anyOf": [{}, {"type": "object"}]},
    {"allOf": [{}, {"required": []}]},
    {"type": EVERY_TYPE},
    {"not": {"not": {}}},
    {"minProperties": 0, "minItems": 0},
    {"properties": {"a": {}}},
    {"properties": {"a": {"properties": {"b": {"type": EVERY_TYPE}}}}},
    {"items": True, "additionalProperties": {}},
]
EVERY_OBJECT: list[Fields] = [{"type": "object"}, {"type": ["object", "null"]}, {"items": False}]
SOME: list[Fields] = [
    {"required": ["a"]},
    {"properties": {"a": {"type": "string"}}},
    {"properties": {"a": {"properties": {"b": {"type": "integer"}}}}},
    {"additionalProperties": False},
    {"properties": {"a": {"items": {"type": "string"}}}},
    {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"properties": {"a": {"maxLength": 7}}},
]


@pytest.mark.parametrize("schema", EVERY_VALUE)
def test_a_contract_that_accepts_every_value_is_refused(schema: Fields):
    for kind in ("topics", "events"):
        given: Any = {kind: {"a": schema}}
        with pytest.raises(UsageError, match=r"the schema accepts (every value|the data of every)"):
            Contracts(**given)


@pytest.mark.parametrize("schema", EVERY_OBJECT)
def test_a_contract_that_accepts_the_data_of_every_event_is_refused(schema: Fields):
    Contracts(topics={"a": schema})
    with pytest.raises(UsageError, match="the schema accepts the data of every event"):
        Contracts(events={"a": schema})


@pytest.mark.parametrize("schema", SOME)
def test_a_contract_that_refuses_some_data_is_one(schema: Fields):
    assert Contracts(events={"a": schema}).wants("a")


@pytest.mark.parametrize("empty", [[], {}, "", None])
def test_an_empty_transcript_is_no_data_also_for_an_empty_golden(empty: Any):
    with pytest.raises((CheckFailed, UsageError), match=r"the transcript is empty|matches every"):
        assert_golden_transcript(empty, empty)


def yields(result: object) -> Iterable[None]:
    assert not result
    yield


async def returns_false(result: object) -> bool:
    return not result


CALLBACKS: dict[str, tuple[Callable[[Any], object], str]] = {
    "False": (lambda result: result.text == "gold", "it returned False"),
    "False, awaited": (returns_false, "it returned False"),
    "a reason": (lambda result: (result.text == "gold", "no gold"), "no gold"),
    "a generator": (yields, "generator, which never ran"),
}


@pytest.mark.parametrize("callback, message", CALLBACKS.values(), ids=CALLBACKS)
def test_a_callback_of_a_result_that_says_no_fails_the_run(
    callback: Callable[[Any], object], message: str
):
    step = call("bash", {"command": "ls"}).then(callback)
    refused = pytest.raises((CheckFailed, UsageError))
    with session(mock_tools={"bash": "a lamp"}) as rehearsal, refused as caught:
        rehearsal.run(when("Go", [step, say("Done.")]))
    assert message in str(caught.value)


CONDITIONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "False": (lambda _: False, "never ended with|differ|a required condition is false$"),
    "a reason": (lambda _: (False, "no gold"), "never ended with|differ|is false: no gold$"),
    "a coroutine": (returns_false, "coroutine, which never ran"),
    "a generator": (yields, "generator, which never ran"),
}


def check_input(condition: Callable[[Any], object]) -> None:
    compared = compare_tool_calls(
        [ActualCall("refund", {"id": 7})], [ExpectedCall("refund", condition)], "exact"
    )
    if not compared.ok:
        raise CheckFailed("the calls differ")


def check_record(condition: Callable[[Any], object]) -> None:
    record = {"event": "step.post", "step_name": "plan", "output": 1}
    assert_step_emitted("plan", condition, [record])


def check_requirement(condition: Callable[[Any], object]) -> None:
    require(condition(None))


@pytest.mark.parametrize("condition, message", CONDITIONS.values(), ids=CONDITIONS)
@pytest.mark.parametrize("check", [check_input, check_record, check_requirement])
def test_a_condition_of_a_check_that_says_no_or_nothing_fails(
    check: Callable[[Callable[[Any], object]], None],
    condition: Callable[[Any], object],
    message: str,
):
    with pytest.raises((CheckFailed, RequirementFailed, UsageError), match=message):
        check(condition)
    check(lambda _: (True, ""))


def test_a_source_of_which_nothing_was_asked_tested_nothing():
    class Silence:
        async def reply(self, request: Request, /) -> Reply:
            raise NotImplementedError

    with (
        pytest.raises(CheckFailed, match="the agent never called the model"),
        drive(silent, source=Silence()) as rehearsal,
    ):
        rehearsal.run("Go")
