"""The traces of the example patterns: a list, a spreadsheet, and a summariser with a model."""

from __future__ import annotations

import sys
from pathlib import Path

from offbook import say, when
from offbook.patterns import create_harness

EXAMPLES = Path(__file__).parents[2] / "examples" / "patterns"


def run_shopping_list(trace: Path) -> None:
    """Tick one item, remove another, and wait for the reminder of the third."""
    items = [{"name": name, "price": 3, "bought": False} for name in ("tea", "cake", "milk")]
    with create_harness(trace=trace) as h:
        loaded = h.load(EXAMPLES / "shopping_list.py:shopping_list", {"items": items})
        loaded.result.rows[1].toggle.send()
        h.idle()
        loaded.result.remove.send({"index": 0})
        h.advance(3600)
        assert (loaded.result.left, loaded.result.reminders) == (3, ["milk"])


def run_spreadsheet(trace: Path) -> None:
    """Change a cell that two formulas depend on."""
    with create_harness(trace=trace) as h:
        sheet = {"A1": "2", "A2": "3", "B1": "=A1+A2", "B2": "=B1*2"}
        loaded = h.load(EXAMPLES / "spreadsheet.py", {"sheet": sheet})
        loaded.result.enter.send({"at": "A1", "text": "10"})
        h.idle()
        assert loaded.result["values"]["B2"] == 26


def run_summariser(trace: Path) -> None:
    """Summarise a text with a model."""
    script = [when("Summarise in one sentence: A long text.", [say("Short.")])]
    with create_harness(playbook=script, trace=trace) as h:
        loaded = h.load(EXAMPLES / "summariser.py", {"text": "A long text."})
        loaded.result.summarise.send()
        h.settled()
        assert (loaded.result.summary, loaded.result.saved) == ("Short.", 6)


PATTERNS = {
    "shopping_list": run_shopping_list,
    "spreadsheet": run_spreadsheet,
    "summariser": run_summariser,
}

if __name__ == "__main__":
    for name, run in PATTERNS.items():
        run(Path(sys.argv[1]) / f"{name}.jsonl")
