"""The mock files of Harn are parsed and answered as Harn does."""

import json
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, ModelError, ScriptMismatch
from offbook.exchange import History, Request, user
from offbook.sources.mocks import Mocks, lint_mocks, parse_mocks, read_mocks
from offbook.trace import Glob

pytestmark = pytest.mark.external


def ask(text: str, scope: str = "agent.main") -> Request:
    return Request(History([user(text)]), metadata={"scope": scope})


@pytest.fixture
def derived(shared_data: Path) -> Path:
    return shared_data / "harn" / "derived" / "llm_mock"


def cases(path: Path) -> list[Any]:
    return json.loads(path.read_text())["cases"]


def test_every_file_is_parsed_but_the_invalid_one(shared_data: Path):
    files = [
        *(shared_data / "harn").rglob("llm_mock/*.jsonl"),
        *(shared_data / "harn").rglob("burin-mini/fixtures/*.jsonl"),
        *(shared_data / "harn").rglob("*.llm-mock.jsonl"),
        *(shared_data / "harn").rglob("trace_import/expected.*.jsonl"),
    ]
    assert len(files) >= 15
    rejected: list[str] = []
    for file in files:
        try:
            assert read_mocks(file).mocks
        except FormatError as error:
            rejected.append(f"{file.name}:{error.line}")
    assert rejected == ["invalid_unknown_category.jsonl:1"]


def test_globs_match_as_in_harn(derived: Path):
    table = cases(derived / "glob_cases.json")
    assert [Glob(pattern).matches(text) for pattern, text, _ in table] == [row[2] for row in table]


def test_error_categories_are_inferred_as_in_harn(derived: Path):
    for case in cases(derived / "error_inference_cases.json"):
        text = json.dumps({"error": case["error"]})
        if "parse_error" in case:
            with pytest.raises(FormatError):
                parse_mocks(text)
            continue
        error = parse_mocks(text).mocks[0].line.error
        assert error is not None
        assert error.inferred_category == case["category"]
        assert error.text == case.get("message", error.text)


async def test_the_example_has_an_unreachable_line_after_an_error(derived: Path):
    mocks = Mocks(derived / "spec_example.jsonl")
    assert [(f.line, f.kind) for f in lint_mocks(mocks.file)] == [(4, "unreachable")]
    assert (await mocks.reply(ask("anything"))).text.startswith("PLAN: ")
    assert (await mocks.reply(ask("hello there"))).model == "fixture-model"
    with pytest.raises(ModelError) as error:
        await mocks.reply(ask("please retry"))
    assert (error.value.category, error.value.message) == ("rate_limit", "fake rate limit")


@pytest.mark.parametrize(
    "name,scope,prompts,replies",
    [
        ("fifo", "", ["a", "b", "c"], ["first", "second", None]),
        ("glob_reuse", "", ["hello", "oh hello", "bye"], ["matched", "matched", None]),
        ("unmatched", "", ["hello"], [None]),
        ("multi_tool", "", ["a", "b"], ["", "multi tool complete"]),
        ("consume_match", "", ["[demo][token=write-note]"] * 3, ["", "matched summary", None]),
        ("v1_scopes_fallback", "agent.main", ["a", "b", "c"], ["MAIN", "DEFAULT", None]),
        ("v1_sticky", "completion.judge", ["a", "b", "c"], ["ONCE", "JUDGE", "JUDGE"]),
    ],
)
async def test_files_answer_as_in_harn(
    derived: Path, name: str, scope: str, prompts: list[str], replies: list[str | None]
):
    mocks = Mocks(derived / f"{name}.jsonl")
    for prompt, expected in zip(prompts, replies, strict=True):
        if expected is None:
            with pytest.raises(ScriptMismatch, match="matched prompt:"):
                await mocks.reply(ask(prompt, scope))
        else:
            assert (await mocks.reply(ask(prompt, scope))).text == expected


async def test_long_files_are_used_up_to_the_last_line(shared_data: Path):
    folder = shared_data / "harn" / "experiments" / "burin-mini" / "fixtures"
    for file in folder.glob("*.jsonl"):
        mocks = Mocks(file)
        for mock in mocks.file.mocks:
            await mocks.reply(ask((mock.line.match or "").strip("*")))
        assert not mocks.unused, file
