"""Every relative link of a page points to an existing file and heading."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def find_links(page: Path) -> list[str]:
    """Return the relative links of a page, without those in code."""
    # Code in a link text is removed too; the link target remains.
    text = INLINE_CODE.sub("", BLOCK.sub("", page.read_text(encoding="utf-8")))
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def find_anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub derives them."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in words}


def is_broken(page: Path, link: str) -> bool:
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor and anchor not in find_anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path):
    assert [link for link in find_links(page) if is_broken(page, link)] == []


@pytest.mark.parametrize("link", ["missing.md", "page.md#missing", "#missing"])
def test_a_broken_link_is_found(tmp_path: Path, link: str):
    page = tmp_path / "page.md"
    page.write_text(
        f"# A page\n\nSee [`code`]({link}), [itself](#a-page) and [web](https://a.b).\n"
    )
    assert find_links(page) == [link, "#a-page"]
    assert is_broken(page, link)
    assert not is_broken(page, "#a-page")
