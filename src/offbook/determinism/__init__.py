"""Time, ids, threads and the network, under control: two runs of a test are the same."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "environment": "read_environment set_environment",
        "faults": "FaultInjector Faults KINDS parse_faults",
        "frozen_time": "FROZEN_VARIABLE SITECUSTOMIZE RunClock frozen_environment replace_clock",
        "network_guard": "NetworkGuard block_network is_ip_address is_this_machine",
        "run_context": "AuditHook EPOCH FrozenClock IdCounter SystemClock apply_patch bind_context"
        " current_llm keep_wire live_listener stable_id use_variable watch_audit_events",
    },
)
