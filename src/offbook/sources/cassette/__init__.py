"""Cassettes: what was asked of a model and what it answered, recorded once, replayed for ever."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "cassette_file": "CassetteFile journal_path read_cassette_bytes",
        "format": "CassetteTitle Interaction RecordedRequest RecordedResponse format_chunks"
        " parse_chunks shift_chunks ConversationDigest Normalizer collapse_whitespace hide_roots"
        " merge_rules number_call_ids parse_tracks register_call_ids request_as_json restore_roots"
        " RecordedTool",
        "journal": "Journal JournalMerged append_interactions as_block_sequence edit_mapping"
        " load_cassette remove_interactions update_header"
        " update_interactions",
        "maintenance": "Drift add_redactions cassette_stats compare_cassettes count_hats"
        " find_cassettes rebuild_request stale_interactions trim_cassette upgrade_cassette"
        " verify_cassette",
        "recording": "Recording Rerecording price_table",
        "replay": "Cassette ReplayCursor RequestHashes request_hat",
        "tracks": "PeopleReplay ToolReplay TrackRecorder",
        "written_test": "write_test",
    },
)
