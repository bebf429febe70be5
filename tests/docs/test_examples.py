"""Every example of the pages runs, and the runner of examples would tell if one did not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.docs.examples import Block, ExampleError, blocks_of, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/**/*.md"))]


def cases() -> Iterator[ParameterSet]:
    """Each page, and beside it a visible skip for every block that it leaves out."""
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        blocks = [*blocks_of(page.read_text() if page.exists() else "")]
        away = bool(blocks) and all(block.left_out for block in blocks)
        if not away:
            of_others = [pytest.mark.clients] if any(block.needs for block in blocks) else []
            yield pytest.param(page, id=name, marks=of_others)
        for block in blocks:
            if block.left_out is not None:
                left_out = pytest.mark.skip(reason=f"{name}, line {block.line}: {block.left_out}")
                yield pytest.param(page, id=f"{name}, line {block.line}", marks=left_out)


@pytest.mark.parametrize("page", [*cases()])
def test_every_example_of_a_page_runs(page: Path, tmp_path: Path):
    assert run_page(page, tmp_path), f"{page.name} has no example that runs"


def page_with(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


PASSING = {
    "a script": "```python\nassert 1 + 1 == 2\n```\n",
    "a test": "```python\ndef test_sum():\n    assert 1 + 1 == 2\n```\n",
    "an async test": "```python\nasync def test_sum():\n    assert 1 + 1 == 2\n```\n",
    "a command": "```console\n$ offbook --version\noffbook 0.1.0\n```\n",
    "a command that promises to fail": "```console\n$ offbook no-such-command  # exit 2\n```\n",
    "a file for a later block": (
        "<!-- file: shop.py -->\n```python\nPRICE = 7\n```\n"
        "```python\nimport shop\nassert shop.PRICE == 7\n```\n"
    ),
}

BROKEN = {
    "a script": ("```python\nassert 1 + 1 == 3\n```\n", "page.md, line 1: exit 1"),
    "a test": ("```python\ndef test_sum():\n    assert 1 + 1 == 3\n```\n", "test_line_1.py"),
    "a command": ("```console\n$ offbook no-such-command\n```\n", "exit 2, not 0"),
    "a command that succeeds": ("```console\n$ offbook --version # exit 1\n```\n", "exit 0, not 1"),
    "a command that says something else": (
        "```console\n$ offbook --version\noffbook 99\n```\n",
        "it does not say 'offbook 99'",
    ),
    "a test that is never collected": (
        "```python\nclass Suite:\n    def test_sum(self): ...\n```\n",
        "exit 5",
    ),
    "a test beside one that is never collected": (
        "```python\ndef test_sum(): ...\n```\n```python\nclass A:\n def test_b(self): ...\n```\n",
        "line 4: pytest finds no test in it",
    ),
}


@pytest.mark.parametrize("text", PASSING.values(), ids=PASSING)
def test_an_example_that_works_is_counted(tmp_path: Path, text: str):
    assert run_page(page_with(tmp_path, text), tmp_path) == 1


@pytest.mark.parametrize("text, message", BROKEN.values(), ids=BROKEN)
def test_an_example_that_is_broken_fails(tmp_path: Path, text: str, message: str):
    with pytest.raises(ExampleError, match=re.escape(message)):
        run_page(page_with(tmp_path, text), tmp_path)


def test_a_block_that_is_left_out_says_why_and_is_not_run(tmp_path: Path):
    text = "<!-- not run: asks a real model -->\n```python\n1 / 0\n```\n"
    assert run_page(page_with(tmp_path, text), tmp_path) == 0
    assert list(blocks_of(text)) == [
        Block("python", "1 / 0\n", line=2, not_run="asks a real model"),
    ]


def test_only_the_comment_right_before_a_block_counts():
    text = "<!-- file: a.py -->\n\nwords\n\n```python\npass\n```\n"
    assert list(blocks_of(text)) == [Block("python", "pass\n", line=5)]


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"}
    assert {name for name in pages if f"({name})" not in index} == set()
