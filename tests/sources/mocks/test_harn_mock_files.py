"""Mock files that others have written are read as they meant them."""

import json
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, ModelError, ScriptMismatch
from offbook.exchange.messages import History, user
from offbook.exchange.model import Request
from offbook.sources.mocks.globs import Glob
from offbook.sources.mocks.mock_file import lint_mocks, parse_mocks, read_mocks
from offbook.sources.mocks.mocks import Mocks

pytestmark = pytest.mark.external


def ask(text: str, scope: str = "agent.main") -> Request:
    return Request(History([user(text)]), metadata={"scope": scope})


@pytest.fixture
def derived(shared_data: Path) -> Path:
    return shared_data / "harn" / "derived" / "llm_mock"


def cases(path: Path) -> list[Any]:
    return json.loads(path.read_text())["cases"]


def test_every_file_is_read_but_the_one_that_is_wrong(shared_data: Path):
    files = [
        *(shared_data / "harn").rglob("llm_mock/*.jsonl"),
        *(shared_data / "harn").rglob("burin-mini/fixtures/*.jsonl"),
        *(shared_data / "harn").rglob("*.llm-mock.jsonl"),
        *(shared_data / "harn").rglob("trace_import/expected.*.jsonl"),
    ]
    assert len(files) >= 15
    refused: list[str] = []
    for file in files:
        try:
            assert read_mocks(file).mocks
        except FormatError as error:
            refused.append(f"{file.name}:{error.line}")
    assert refused == ["invalid_unknown_category.jsonl:1"]


def test_their_globs(derived: Path):
    table = cases(derived / "glob_cases.json")
    assert [Glob(pattern).fits(text) for pattern, text, _ in table] == [fits for *_, fits in table]


def test_their_errors(derived: Path):
    for case in cases(derived / "error_inference_cases.json"):
        text = json.dumps({"error": case["error"]})
        if "parse_error" in case:
            with pytest.raises(FormatError):
                parse_mocks(text)
            continue
        refusal = parse_mocks(text).mocks[0].line.error
        assert refusal is not None
        assert refusal.named == case["category"]
        assert refusal.text == case.get("message", refusal.text)


async def test_their_example_has_a_dead_line_and_raises_the_error_before_it(derived: Path):
    mocks = Mocks(derived / "spec_example.jsonl")
    assert [(f.line, f.kind) for f in lint_mocks(mocks.script)] == [(4, "unreachable")]
    assert (await mocks.reply(ask("anything"))).text.startswith("PLAN: ")
    assert (await mocks.reply(ask("hello there"))).model == "fixture-model"
    with pytest.raises(ModelError) as error:
        await mocks.reply(ask("please retry"))
    assert (error.value.category, error.value.message) == ("rate_limit", "fake rate limit")


@pytest.mark.parametrize(
    "name,scope,prompts,said",
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
async def test_their_files_answer_as_they_do(
    derived: Path, name: str, scope: str, prompts: list[str], said: list[str | None]
):
    mocks = Mocks(derived / f"{name}.jsonl")
    for prompt, expected in zip(prompts, said, strict=True):
        if expected is None:
            with pytest.raises(ScriptMismatch, match="matched prompt:"):
                await mocks.reply(ask(prompt, scope))
        else:
            assert (await mocks.reply(ask(prompt, scope))).text == expected


async def test_their_long_scripts_play_to_the_end(shared_data: Path):
    folder = shared_data / "harn" / "experiments" / "burin-mini" / "fixtures"
    for file in folder.glob("*.jsonl"):
        mocks = Mocks(file)
        for mock in mocks.script.mocks:
            await mocks.reply(ask((mock.line.match or "").strip("*")))
        assert not mocks.unused, file
