"""Reports: a trace and its verdicts, rendered for people and for other programs."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "github": "GitHubReport MarkdownReport annotation escape_markdown fence write_step_summary"
        " NeutralStream neutralize",
        "json_report": "BadgeReport JsonReport RunCounts TraceCounts count_events",
        "otel_spans": "ATTRIBUTES PARAMETERS export_spans",
        "report": "Attempt Case CtrfReport JUnitReport Report Suite Tap13Report TapReport"
        " collect_suite remove_invalid",
        "styled_lines": "MAX_CHILDREN StyledText print_lines render_line wrap_line",
        "terminal": "TraceTree render_last_lines",
    },
)
