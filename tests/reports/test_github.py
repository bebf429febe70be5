"""Annotations and summaries of GitHub Actions, and badges: hostile text is never markup."""

import re
import urllib.parse
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from offbook.reports import (
    BadgeReport,
    Case,
    GitHubReport,
    MarkdownReport,
    Suite,
    annotation,
    collect_suite,
    escape_markdown,
    fence,
    write_step_summary,
)
from offbook.trace import VERDICT, ConversationChange, Event

etree: Any = import_module("lxml.etree")
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example/x.png)",
    "[click](javascript:alert(1))",
    "| a | b |\n|---|---|\n| <b>x</b> | y |",
    "a \\| b `c` \\` <i>",
    "`````\n</code><script>x</script>",
    "```\n<script>x</script>\n```",
    "~~~\n# heading",
    "&lt;b&gt; &amp; &#60;",
    "# heading\n\n<!-- hidden",
    "https://evil.example www.evil.example @octocat #1",
    "::error::injected",
    "x\n::set-output name=a::b",
    "x\r\n::add-mask::y",
    "%0A::stop-commands::t",
    "line\u2028::warning::z\x85::error::w",
    "\x1b[2J\x00\ud800",
    "_a_ *b* **c** ~~d~~ <https://x.example>",
]
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(alphabet=st.sampled_from("`|\\<>&[]()!*_~#:%\n\r a-\u2028\x85"), max_size=40),
    st.text(max_size=40),
)
MARKUP = {"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "s_open"}


def parse(markdown: str) -> tuple[list[str], list[str]]:
    """Return the types of all tokens, and the texts of all table cells and headings."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = [each for token in parser.parse(markdown) for each in (token, *(token.children or ()))]
    inline = [
        "".join(child.content for child in token.children or ())
        for token in tokens
        if token.type == "inline"
    ]
    return [token.type for token in tokens], inline


def one_line(text: str) -> str:
    replaced = text.encode("utf-8", "replace").decode()
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", replaced).strip()


@given(texts, texts)
def test_no_text_is_markup_in_a_summary(name: str, message: str):
    suite = Suite("s", (Case(name, "failed", message=message), Case("b", "passed")))
    types, inline = parse(MarkdownReport().render(suite))
    assert not MARKUP & set(types)
    assert types.count("table_open") == 1
    assert types.count("tr_open") == 3  # the head and two cases
    assert types.count("td_open") == 6
    assert one_line(name) in inline


@given(texts)
def test_an_escaped_text_reads_as_the_text_itself(text: str):
    _, inline = parse(f"| {escape_markdown(text)} |\n|---|\n")
    assert inline == [one_line(text)]


@given(texts)
def test_a_text_cannot_leave_its_code_block(text: str):
    tokens = MarkdownIt("commonmark").parse(f"{fence(text)}\n\nend")
    assert [token.type for token in tokens] == [
        "fence",
        "paragraph_open",
        "inline",
        "paragraph_close",
    ]


@given(texts, texts, texts)
def test_an_annotation_is_one_command_with_its_own_texts(message: str, title: str, file: str):
    line = annotation("error", message, title=title, file=file, line=3)
    # As the runner reads it: lines, then the properties between the first two pairs of colons.
    assert len(line.splitlines()) == 1
    properties, _, data = line.removeprefix("::error ").partition("::")
    fields = dict(pair.split("=", 1) for pair in properties.split(","))
    assert set(fields) == {"line"} | {
        key for key, value in (("title", title), ("file", file)) if value
    }
    assert "::" not in properties
    decoded = urllib.parse.unquote(data)
    expected = message.encode("utf-8", "replace").decode()
    assert re.sub(r"\s", " ", decoded) == re.sub(r"[\s\x00-\x1f\x7f-\x9f]", " ", expected)


def test_a_failed_case_is_annotated_at_its_line():
    case = Case("1 total", "failed", message="no", expected=3, actual=4, file="a,b.py", line=7)
    suite = Suite("s", (case, Case("2 fine", "passed")))
    assert GitHubReport().render(suite) == (
        "::error file=a%2Cb.py,line=7,title=1 total::no%0Aexpected: 3%0Aactual: 4\n"
    )


def test_a_change_is_a_notice_and_a_line_of_the_summary():
    changes = (
        ConversationChange("model", "a", "b"),
        ConversationChange("text", "c", "d", 1, "fails"),
    )
    suite = Suite("run", (Case("1 it", "passed"),), changes=changes)
    line = "another model: expected 'a', got 'b'"
    assert GitHubReport().render(suite) == (
        f"::notice title=run%3A the agent changed something::{line}\n"
    )
    assert f"- {escape_markdown(line)}" in MarkdownReport().render(suite).splitlines()


def test_the_file_and_line_of_a_verdict_are_those_of_its_context():
    data = {"check": "c", "status": "fail", "context": {"file": "shop.yaml", "line": 12}}
    suite = collect_suite([Event(0, VERDICT, data)], "shop")
    assert (suite.cases[0].file, suite.cases[0].line) == ("shop.yaml", 12)


def test_a_long_summary_stays_below_the_limit_of_github():
    cases = tuple(Case(f"case {n}", "failed", message="🙂`" * 4500) for n in range(3000))
    text = MarkdownReport().render(Suite("s", cases))
    assert len(text.encode()) < 1024 * 1024
    assert "… and 2900 more" in text


def test_the_step_summary_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert not write_step_summary("lost")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert write_step_summary("one\n")
    assert write_step_summary("two\n")
    assert (tmp_path / "summary.md").read_text() == "one\ntwo\n"


PASSED, FAILED, SKIPPED = (Case(s, s) for s in ("passed", "failed", "skipped"))


@pytest.mark.parametrize(
    "suites, text, colour",
    [
        ([Suite("a", (PASSED, PASSED))], "2 passed", "#2da44e"),
        ([Suite("a", (PASSED, FAILED))], "1 failed, 1 passed", "#cf222e"),
        ([Suite("a", (SKIPPED,))], "1 skipped", "#57606a"),
        ([Suite("a", (PASSED,)), Suite("b", ())], "1 passed", "#57606a"),
        ([Suite("a", ())], "no results", "#57606a"),
        ([], "no results", "#57606a"),
    ],
    ids=["passed", "failed", "skipped", "one suite is empty", "empty", "nothing"],
)
def test_a_badge_has_the_counts_and_their_colour(suites: list[Suite], text: str, colour: str):
    root = etree.fromstring(BadgeReport().render(*suites).encode())
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert [each.text for each in root.iter(f"{space}text")] == ["offbook", text]
    assert [each.get("fill") for each in root.iter(f"{space}rect")][1] == colour
    assert int(root.get("width", "0")) < 250
