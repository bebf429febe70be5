"""./dev site finds what would be broken on the site. The build itself is not part of the tests."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SITE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "site.py"))


def test_every_page_is_in_the_navigation():
    docs = ROOT / "docs"
    pages = [path.relative_to(docs) for path in sorted(docs.rglob("*.md"))]
    navigation = SITE["read_navigation"]((docs / "README.md").read_text(encoding="utf-8"))
    assert [*navigation[0]] == ["Getting started"]
    assert SITE["find_unlisted"](pages, navigation) == ["README.md"]  # the first page of the site


def test_a_page_without_a_link_in_the_navigation_is_found():
    navigation = SITE["read_navigation"]("## Guides\n- [A](guides/a.md), [B](b/README.md)\n")
    pages = [Path("guides/a.md"), Path("guides/c.md"), Path("b/README.md"), Path("b/d.md")]
    assert SITE["find_unlisted"](pages, navigation) == ["guides/c.md"]


LINKS = {
    "to a page": ("[a](../reference/trace.md#x)", "[a](../reference/trace.md#x)"),
    "with code": ("[`a`](../reference/trace.md)", "[`a`](../reference/trace.md)"),
    "to the first page": ("[a](../README.md)", "[a](../index.md)"),
    "to a page of the root": ("[a](../../CHANGELOG.md)", "[a](../CHANGELOG.md)"),
    "to a file outside": ("see [a](../../src/offbook/files.py).", "see a."),
    "to another site": ("[a](https://pytest.org)", "[a](https://pytest.org)"),
    "in a block": ("```md\n[a](../../dev)\n```\n", "```md\n[a](../../dev)\n```\n"),
    "in code": ("`[a](../../dev)`", "`[a](../../dev)`"),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_is_rewritten_for_the_site(name: str, tmp_path: Path):
    text, expected = LINKS[name]
    assert SITE["rewrite"](text, tmp_path / "guides" / "ci.md", tmp_path) == expected


def test_the_directives_of_the_tests_are_left_out(tmp_path: Path):
    text = "<!-- file: a.py -->\n```python\n```\n"
    assert SITE["rewrite"](text, tmp_path / "a.md", tmp_path) == "```python\n```\n"


def test_a_broken_link_and_a_broken_anchor_are_found(tmp_path: Path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#one">1</a><a href="b.html#two">2</a>'
        '<a href="c.html">3</a><a href="#top">4</a><img src="no.png">'
    )
    (tmp_path / "b.html").write_text('<h2 id="one"></h2>')
    assert SITE["broken_links"](tmp_path) == [
        "a.html: b.html#two",
        "a.html: c.html",
        "a.html: no.png",
    ]
