"""Reports: a trace and its verdicts, rendered for people and for other programs."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "ctrf": "CtrfReport",
        "github": "GitHubReport MarkdownReport annotation escape_markdown fence write_step_summary",
        "json_report": "BadgeReport JsonReport RunCounts TraceCounts count_events",
        "junit": "JUnitReport remove_invalid",
        "otel_spans": "ATTRIBUTES PARAMETERS export_spans",
        "report": "Attempt Case Report Suite collect_suite",
        "styled_lines": "MAX_CHILDREN print_lines render_line",
        "tap": "Tap13Report TapReport",
        "terminal": "TraceTree render_last_lines",
        "workflow_commands": "NeutralStream neutralize",
    },
)
