"""Build the documentation site in .site/html: ./dev site.

The navigation is that of docs/README.md: its headings, its lists and their links. A page that it
does not name fails the build, and so does a warning of Zensical or a link that leads nowhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / ".site"
BESIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")  # pages at the root of the checkout
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\]\[]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
BLOCK, WORD = r"^```.*?^```", r"`[^`\n]+`"
DIRECTIVE = re.compile(r"^<!-- (?:file|not run|needs): .*? -->\n", re.MULTILINE)


def copy_pages(target: Path) -> list[Path]:
    """Copy the pages with links that stay inside of the site; return their paths in it."""
    shutil.copytree(DOCS, target, ignore=shutil.ignore_patterns("zensical.toml"))
    (target / "README.md").rename(target / "index.md")
    for name in BESIDE:
        shutil.copy(ROOT / name, target)
    for page in sorted(target.rglob("*.md")):
        page.write_text(rewrite(page.read_text(encoding="utf-8"), page, target), encoding="utf-8")
    return [page.relative_to(target) for page in sorted(target.rglob("*.md"))]


def rewrite(text: str, page: Path, target: Path) -> str:
    """Return a page of the site: no directives of the tests, and no link to a file outside."""
    inside = page.relative_to(target)
    # In the repository, the copied pages of the root are one folder higher than docs/.
    source = ROOT / inside if inside.name in BESIDE and inside.parent == Path() else DOCS / inside
    # A link before code: the text of a link may contain code, and a block of code may show a link.
    pattern = f"(?P<code>{BLOCK})|{LINK.pattern}|(?P<word>{WORD})"

    def replace(link: re.Match[str]) -> str:
        if link["code"] or link["word"] or re.match(r"[a-z]+:|#", link["target"]):
            return link[0]
        path, _, anchor = link["target"].partition("#")
        file = Path(os.path.normpath(source.parent / path))
        if file.is_relative_to(DOCS):
            place = target / file.relative_to(DOCS)
        elif file.parent == ROOT and file.name in BESIDE:
            place = target / file.name
        else:
            return link["text"]  # a file of the repository that is no page
        if place in {target, target / "README.md"}:
            place = target / "index.md"
        relative = os.path.relpath(place, page.parent) + (f"#{anchor}" if anchor else "")
        return f"{link['image']}[{link['text']}]({relative})"

    text = DIRECTIVE.sub("", text)
    return re.sub(pattern, replace, text, flags=re.DOTALL | re.MULTILINE)


Navigation = list[Any]  # pages, and dicts of a title and a navigation


def read_navigation(text: str) -> Navigation:
    """Return the headings of docs/README.md, and below them its lists with their pages.

    A list that begins with words, `- Recording: [a](a.md)`, is a group of its own.
    """
    sections: Navigation = []
    for heading, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE):
        entries: Navigation = []
        for line in re.findall(r"^- (.+)$", body, re.MULTILINE):
            title = re.match(r"([^\[\]:]+): ", line)
            pages = list(dict.fromkeys(re.findall(r"\]\(([^)#\s]+\.md)\)", line)))
            entries += [{title[1]: pages}] if title and len(pages) > 1 else pages
        sections.append({heading: entries})
    return sections


def list_pages(navigation: Navigation) -> Iterator[str]:
    """Yield the pages of a navigation in order."""
    for entry in navigation:
        if isinstance(entry, str):
            yield entry
        else:
            for entries in entry.values():
                yield from list_pages(entries)


def find_unlisted(pages: list[Path], navigation: Navigation) -> list[str]:
    """Return the pages that no list names; those of a folder whose README is listed are its own."""
    listed = set(list_pages(navigation))
    folders = {str(Path(page).parent) for page in listed if Path(page).name == "README.md"}
    return [
        str(page)
        for page in pages
        if str(page) not in {*listed, "index.md", *BESIDE} and str(page.parent) not in folders
    ]


def add_folders(navigation: Navigation, pages: list[Path]) -> Navigation:
    """Return the navigation with the pages of a folder below its README."""
    result: Navigation = []
    for entry in navigation:
        if not isinstance(entry, str):
            result.append({title: add_folders(each, pages) for title, each in entry.items()})
        elif Path(entry).name != "README.md":
            result.append(entry)
        else:
            folder = Path(entry).parent
            title = folder.name.replace("clis", "command-line agents").capitalize()
            own = [str(p) for p in pages if p.parent == folder and p.name != "README.md"]
            result.append({title: [entry, *own]})
    return result


def to_toml(value: Any) -> str:
    """Return a value as inline TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {to_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value)


class Page(HTMLParser):
    """The links and the anchors of a built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {name for key in ("id", "name") if (name := values.get(key))}
        link = values.get({"a": "href", "link": "href"}.get(tag, "src"))
        if link:
            self.links.append(link)


def broken_links(html: Path) -> list[str]:
    """Return the links of the built pages that lead nowhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in html.rglob("*.html")}
    broken: list[str] = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are absolute: it is shown at any address
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            known = pages[target].anchors if target in pages else None
            if not target.exists() or (anchor and known is not None and anchor not in known):
                broken.append(f"{path.relative_to(html)}: {link}")
    return broken


def main() -> int:
    """Build the site and check it."""
    shutil.rmtree(SITE, ignore_errors=True)
    pages = copy_pages(SITE / "pages")
    navigation = read_navigation((DOCS / "README.md").read_text(encoding="utf-8"))
    if unlisted := find_unlisted(pages, navigation):
        print(f"site: failed: not in docs/README.md: {', '.join(unlisted)}", file=sys.stderr)
        return 1
    project = {"Project": list(BESIDE)}
    nav = [{"Home": "index.md"}, *add_folders(navigation, pages), project]
    config = (DOCS / "zensical.toml").read_text(encoding="utf-8")
    (SITE / "zensical.toml").write_text(config.replace("#nav", f"nav = {to_toml(nav)}"))
    program = str(Path(sys.executable).parent / "zensical")
    built = subprocess.run(  # noqa: S603 - our own tool
        [program, "build", "--strict", "--clean"], cwd=SITE, check=False
    )
    if built.returncode:
        print("site: failed: zensical build --strict", file=sys.stderr)
        return 1
    files = list((SITE / "html").rglob("*.html"))
    if len(files) < len(pages):
        print(f"site: failed: {len(files)} of {len(pages)} pages were built", file=sys.stderr)
        return 1
    if broken := broken_links(SITE / "html"):
        print("site: failed: broken links:", *broken[:20], sep="\n  ", file=sys.stderr)
        return 1
    print(f"site: {len(pages)} pages in .site/html, no warning, no broken link")
    return 0


if __name__ == "__main__":
    sys.exit(main())
