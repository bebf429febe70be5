"""Requests to a model and replies from it, independent of any provider."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "messages": "AnyBlock EMPTY_DIGEST History Image JSON Message RAW_ARGUMENTS RawBlock Text"
        " Thinking ToolCall ToolResult extend_digest parse_arguments parse_custom_input"
        " render_arguments render_custom_input strip_injected to_json user",
        "model": "AliasedSource ModelSource Reply Request StopReason Tool ToolAlias ToolAliases"
        " Usage parse_tool_aliases",
        "schema_values": "find_output_schema make_answer make_arguments",
        "tool_effects": "classify find_side_effect has_effect",
        "tool_track": "RecordedException ToolEnd ToolRun ToolTrack",
        "providers": "all_dialects all_providers client_env detect_dialect explain_refusal"
        " list_prices",
    },
)
