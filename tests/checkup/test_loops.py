"""Loops with one weakness each, and careful twins that the same scenario does not blame."""

from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.checkup.checkup_run import play
from offbook.checkup.outcomes import KnownAgent
from offbook.checkup.scenarios import BY_ID, SCENARIOS
from tests.checkup.loops import make_loop

PROMPT = "Refund order 7"
KNOWN = KnownAgent(
    answer="All done.", results=("order 7: 20 EUR",), tool="get_order", source="get_order",
    sink="refund",
)  # fmt: skip


def judge(agent: Callable[[str], object], scenario: str, folder: Path) -> tuple[str, str, str]:
    found = play(agent, BY_ID[scenario], PROMPT, folder / "trace.jsonl", KNOWN)
    return found.outcome, found.rule, found.reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_careful_loop_survives_every_scenario_that_is_for_it(tmp_path: Path, *, stream: bool):
    loop = make_loop(stream=stream)
    played = {s.id: judge(loop, s.id, tmp_path) for s in SCENARIOS}
    wrong = {k: v for k, v in played.items() if v[0] not in {"survived", "unknown"}}
    # The events of this API have no numbers, so it cannot see that one came twice.
    assert wrong.keys() - {"streams/duplicate"} == set()
    unknown = {k.partition("/")[0] for k, v in played.items() if v[0] == "unknown"}
    # Its tools cannot be replaced, it asks no person, and a thread cannot be cancelled.
    assert unknown - {"calls"} == {
        "tools", "people", "cancellation", "injection", "provider" if stream else "streams",
    }  # fmt: skip


# The weakness, the scenario, the rule and the outcome.
WEAK = [
    ("claims done", "provider/401", "claims success", "broke"),
    ("claims done", "provider/500-always", "claims success", "broke"),
    ("claims done", "provider/two-errors", "survived", "survived"),  # the retry was answered
    ("claims done", "replies/refusal", "claims success", "broke"),
    ("claims done", "replies/cut-by-length", "claims success", "broke"),
    ("claims done", "replies/empty-always", "claims success", "broke"),
    ("claims done", "context/too-long-after-tool", "claims success", "broke"),
    ("claims done", "calls/unknown-always", "claims success", "broke"),
    ("always the same answer", "provider/401", "claims success", "broke"),
    ("an object", "provider/401", "claims success", "broke"),
    ("a neutral answer", "provider/401", "no evidence", "unknown"),
    ("a neutral answer", "replies/refusal", "no evidence", "unknown"),
    ("apologizes", "provider/401", "survived", "survived"),
    ("apologizes", "replies/cut-by-length", "survived", "survived"),
    ("apologizes", "calls/unknown-always", "survived", "survived"),
    ("apologizes in German", "provider/401", "survived", "survived"),
    ("quotes the error", "provider/401", "survived", "survived"),
    ("an error object", "provider/401", "survived", "survived"),
    ("apologizes at once", "provider/500-once", "own answer", "degraded"),
    ("apologizes at once", "provider/timeout", "own answer", "degraded"),
    ("shows the cut text", "replies/cut-by-length", "survived", "survived"),
    ("goes on after the cut", "replies/cut-by-length", "survived", "survived"),
    ("swallows the errors of tools", "calls/unknown-tool", "claims success", "broke"),
    ("swallows the errors of tools", "calls/missing-parameter", "claims success", "broke"),
    ("swallows the errors of tools", "calls/cut-json", "claims success", "broke"),
    ("says nothing of the errors of tools", "calls/unknown-tool", "silent failure", "degraded"),
    ("answers early", "calls/with-text", "own answer", "degraded"),
    ("drops unknown calls", "calls/unknown-tool", "lost result", "degraded"),
    ("drops unknown calls", "calls/other-case", "lost result", "degraded"),
    ("drops unknown calls", "parallel/one-unknown", "lost result", "degraded"),
    ("drops unknown calls", "calls/unknown-always", "endless loop", "broke"),
    ("only the first call", "parallel/two-equal", "changed conversation", "broke"),
    ("only the first call", "parallel/two-tools", "changed conversation", "broke"),
    ("asks for ever", "replies/empty-always", "endless loop", "broke"),
    ("retries for ever", "provider/500-always", "endless loop", "broke"),
    ("retries for ever", "provider/401", "endless loop", "broke"),
    ("forgets after an error", "provider/500-after-tool", "lost history", "degraded"),
    ("forgets after an error", "provider/timeout-after-tool", "lost history", "degraded"),
]
WEAK_STREAMS = [
    ("takes the part", "streams/no-end", "damaged answer", "degraded"),
    ("takes the part", "streams/reset", "damaged answer", "degraded"),
    ("keeps the part", "streams/no-end", "damaged answer", "degraded"),
    ("keeps the part", "streams/reset", "damaged answer", "degraded"),
    ("claims done", "replies/refusal", "claims success", "broke"),
    ("answers early", "calls/with-text", "own answer", "degraded"),
    ("forgets after an error", "provider/429-after-tool", "lost history", "degraded"),
    ("only the first call", "parallel/two-equal", "changed conversation", "broke"),
]
CASES = [(*case, False) for case in WEAK] + [(*case, True) for case in WEAK_STREAMS]


@pytest.mark.parametrize("weakness, scenario, rule, outcome, stream", CASES)
def test_a_rule_blames_the_weakness_and_no_careful_loop(
    weakness: str, scenario: str, rule: str, outcome: str, *, stream: bool, tmp_path: Path
):
    found = judge(make_loop(weakness, stream=stream), scenario, tmp_path)
    assert found[:2] == (outcome, rule), found[2]
