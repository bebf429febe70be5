"""Introduces sources, subjects and checks to one another."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "watching": "send_spans",
        "agents": "JudgeConfig ModelAgent",
        "api": "drive session",
        "benchmark": "MIN_PAIRS Sample compare measure read_baseline save_baseline summarize",
        "commands": "CommandResult MAX_OUTPUT TerminalCommand record_command run_command",
        "determinism": "DeterminismTrial check_determinism resolve_target",
        "mock_scopes": "ScopeManager",
        "rehearsal": "Rehearsal RehearsalDefaults use_defaults",
        "result_identity": "IdentityDigest UsedFiles find_change watch_used_files",
        "service": "Service",
        "test_files": "Cassettes RequestGoldens",
        "run": "Run SyncBridge describe_left_behind emit_failure enter_run"
        " in_event_loop list_running place_of_error watch_termination",
        "wiring": "Wiring find_refusal start_faults",
    },
)
