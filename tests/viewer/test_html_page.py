"""The HTML file: what it contains, and how its data are written."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offbook.viewer
from offbook.trace import Event
from offbook.viewer import PageTrace, read_sources, render_page

FOLDER = Path(offbook.viewer.__file__).parent
DATA = re.compile(r'<script type="application/x-offbook-data" id="data">([^<]*)</script>')


def read_lines(page: str) -> list[Any]:
    """Return the lines of the data of a page, with Python's own decoders."""
    found = DATA.search(page)
    assert found is not None
    encoded = found[1].translate(str.maketrans(",.:", "&<>"))
    text = gzip.decompress(base64.b85decode(encoded)).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def test_the_page_contains_every_event_in_order() -> None:
    events = [Event(5, "a", {"x": 1}, 1), Event(9, "b", {}, 2), Event(9, "c", {}, 7, id="i")]
    lines = read_lines(render_page([PageTrace("t", events)], title="T"))
    assert lines[0]["page"]["title"] == "T"
    assert lines[1:] == [
        {"trace": {"name": "t", "path": ""}},
        [5, "a", {"x": 1}],
        [4, "b", {}],
        [0, "c", {}, {"seq": 7, "id": "i"}],
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=5))
def test_any_data_come_back_from_the_page(data: list[dict[str, Any]]) -> None:
    events = [Event(n, "x", each, n + 1) for n, each in enumerate(data)]
    lines = read_lines(render_page([PageTrace("t", events)]))
    assert [line[2] for line in lines if isinstance(line, list)] == data


@given(st.text())
def test_no_title_ends_the_head_of_the_page(title: str) -> None:
    page = render_page([], title=title + "</title><script>alert(1)</script>%DATA%")
    assert page.count("<script") == 2
    assert "<script>alert(1)" not in page


def test_a_lone_surrogate_does_not_break_the_page() -> None:
    lines = read_lines(render_page([PageTrace("t", [Event(0, "x", {"text": "\ud800"})])]))
    assert lines[-1][2] == {"text": "\\ud800"}


def test_a_page_of_a_server_has_no_data_and_may_connect_to_its_server_only() -> None:
    page = render_page(live="events?token=a&b")
    assert 'name="offbook-live" content="events?token=a&amp;b"' in page
    assert "connect-src 'self';" in page
    assert 'id="data"></script>' in page


def test_a_page_from_disk_may_connect_to_nothing() -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', render_page())
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_viewer_is_smaller_than_400_kb() -> None:
    assert (FOLDER / "viewer.html").stat().st_size < 400_000


def test_no_source_of_the_page_parses_html() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
        r"|\beval\(|new Function|srcdoc|\.href\s*=|\.src\s*="
    )
    sources = sorted((FOLDER / "page" / "source").glob("*.ts"))
    assert sources
    assert [path.name for path in sources if forbidden.search(path.read_text("utf-8"))] == []


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((FOLDER / "page" / "package-lock.json").read_text("utf-8"))
    assert all("resolved" not in package for package in lock["packages"].values())


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_committed_viewer_is_current(tmp_path: Path) -> None:
    page = FOLDER / "page"
    if not (page / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs the packages of the page: ./dev viewer installs them")
    built = tmp_path / "viewer.html"
    subprocess.run(["node", "build.mjs", str(built)], cwd=page, check=True, timeout=60)  # noqa: S607
    assert built.read_bytes() == (FOLDER / "viewer.html").read_bytes(), "run ./dev viewer"


def test_the_traces_of_two_folders_have_the_names_of_their_folders(tmp_path: Path) -> None:
    for name in ("main", "branch"):
        (tmp_path / name).mkdir()
        line = json.dumps({"ts": 1, "event": "agent.start", "data": {"prompt": "Go"}, "seq": 1})
        (tmp_path / name / "first.jsonl").write_text(line + "\n")
    traces, _ = read_sources([tmp_path / "main", tmp_path / "branch"])
    assert [trace.name for trace in traces] == ["main/first.jsonl", "branch/first.jsonl"]
