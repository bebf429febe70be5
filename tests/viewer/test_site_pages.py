"""./dev site --browser finds the violations of a page. The pages of the site are not part of it."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
PAGE = """<!doctype html><html lang="en"><title>Shop</title>
<main><h1>Shop</h1><img src="data:,"><p style="color: #888; background: #777">Pale</p>
<p style="color: #666; background: #fff">Legible by AA, not by AAA</p></main>"""


@pytest.mark.slow
def test_rules_are_checked_at_each_width_and_colours_in_both_schemes(
    browser: Browser, tmp_path: Path
):
    pages: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "site_pages.py"))
    if not pages["AXE"].is_file():
        pytest.skip("needs axe-core: ./dev viewer installs it")
    (tmp_path / "index.html").write_text(PAGE)
    with pages["serve"](tmp_path) as address:
        found = pages["check_pages"](browser, address, ["index.html"])
    rules = Counter(violation.rule.partition(":")[0] for violation in found)
    assert rules == {"image-alt": 3, "color-contrast": 6}
