"""Write docs/images/demo.svg: the first run of `offbook demo`, as a terminal shows it."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from offbook.reports.styled_lines import print_lines
from offbook.reports.terminal import TraceTree
from offbook.runs.api import session
from offbook.surfaces.cli import first_steps
from offbook.trace.reader import Trace

TARGET = Path(__file__).resolve().parents[1] / "docs" / "images" / "demo.svg"
WIDTH = 88


def main() -> None:
    """Run the script of the demo and render its trace."""
    with session(extensions=[first_steps.DEMO_EXTENSION], mock_ui={"confirm": True}) as rehearsal:
        rehearsal.run(*first_steps.demo_script())
        output = io.StringIO()
        print_lines(TraceTree().render(Trace(rehearsal.trace)), output, colour=True)
    lines = output.getvalue().splitlines()[1:]  # the first line names the extension's module
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(["$ offbook demo", *lines])))
    svg = console.export_svg(title="offbook demo", unique_id="demo")
    # the fonts of the template come from the network: the page uses the reader's monospace font
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    TARGET.write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
