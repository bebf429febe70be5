"""The trace: events of a run, recorded, read, redacted and queried. All stages share it."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "agent_output": "OutputScanner join_output output_text scan_output",
        "event_contracts": "Contracts",
        "events": "CHANGE ConversationChange ERROR EXIT_CODES Event FAULT FileLine HEADER"
        " LOOP_START PROCESS_EXIT PUBLISH REPLY REQUEST RUN_END RUN_START RunEndData TERMINATION"
        " TOOL_CALL TOOL_END TOOL_RESULT TOOL_START ToolCallData VERDICT VERSION Verdict"
        " VerdictStatus WIRE WORKSPACE_FILES canonical_termination read_verdicts topic_matches"
        " trace_header",
        "executions": "ExecutionReader KnownTools read_executions same_result",
        "globs": "Glob",
        "correlation": "CORRELATION_ID parse_traceparent run_span_id",
        "hub": "Hub NameFilter check_name_filter name_matches",
        "integrity": "HistoryComparison Said find_changes find_denied",
        "instrument": "SeenTool TracedSource",
        "matching": "MISSING Mismatch contains parse_pointer render_value resolve_pointer"
        " text_matches values_equal LiteralPattern TrustedPattern compile_pattern AlignedRow"
        " align align_equal align_in_any_order align_in_order align_runs describe_mismatch"
        " render_rows shorten_sides",
        "query": "Events UICallRecord",
        "reader": "LineFault Trace read_trace EventFilter RecordPage TimelineEntry TraceSummary"
        " build_timeline list_records summarize",
        "rebuilt_requests": "rebuild_requests",
        "recorder": "COLLECT_TRACES KeptEvent KeptEvents Recorder encode_event observe_traces"
        " record_trace",
        "redaction": "PRESETS REQUIRED_CHARACTERS Redaction RedactionRules VOLATILE_OPTIONS"
        " preset_for_command",
    },
)
