"""Time, ids, threads and the network, under control: two runs of a test are the same."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "clock": "EPOCH FROZEN_VARIABLE FrozenClock IdCounter SITECUSTOMIZE SystemClock"
        " freeze_time stable_id",
        "faults": "FaultInjector Faults KINDS parse_faults",
        "network_guard": "AuditHook NetworkGuard block_network is_ip_address"
        " is_this_machine watch_audit_events",
        "run_context": "apply_patch bind_context current_llm keep_wire live_listener use_variable",
    },
)
