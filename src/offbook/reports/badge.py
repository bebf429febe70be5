"""A badge: the counts of all suites as a small SVG image."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

from offbook.reports.report import Suite, join_suites

LABEL = "offbook"
GREEN, RED, GREY = "#2da44e", "#cf222e", "#57606a"
CHARACTER_WIDTH = 7  # of Verdana at 11 px, on average
PADDING = 6
HEIGHT = 20


class BadgeReport:
    """The counts as SVG: green only if something passed and nothing failed."""

    suffix = "svg"

    def render(self, *suites: Suite) -> str:
        """Return the SVG document."""
        total = join_suites(suites)
        failed = total.count("failed") + total.count("error")
        counts = {"failed": failed, "passed": total.count("passed"), "skipped": 0}
        if not failed and not counts["passed"]:
            counts["skipped"] = total.count("skipped")
        parts = [f"{count} {word}" for word, count in counts.items() if count]
        value = ", ".join(parts) or "no results"
        green = bool(suites) and all(suite.green for suite in suites)
        return _draw(value, RED if failed else GREEN if green else GREY)


def _draw(value: str, colour: str) -> str:
    label_width, value_width = (
        len(text) * CHARACTER_WIDTH + 2 * PADDING for text in (LABEL, value)
    )
    width = label_width + value_width
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(width),
            "height": str(HEIGHT),
            "role": "img",
            "aria-label": f"{LABEL}: {value}",
        },
    )
    SubElement(root, "title").text = f"{LABEL}: {value}"
    for x, size, fill in ((0, label_width, "#24292f"), (label_width, value_width, colour)):
        box = {"x": str(x), "width": str(size), "height": str(HEIGHT), "fill": fill}
        SubElement(root, "rect", box)
    font = {"font-family": "Verdana,DejaVu Sans,sans-serif", "font-size": "11", "fill": "#ffffff"}
    for x, text in ((PADDING, LABEL), (label_width + PADDING, value)):
        # The width is given, so that the text fits in any font.
        length = {"x": str(x), "y": "14", "textLength": str(len(text) * CHARACTER_WIDTH)}
        SubElement(root, "text", font | length).text = text
    return tostring(root, encoding="unicode") + "\n"
