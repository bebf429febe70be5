"""Answers the HTTP clients of this process without a socket."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "interceptor": "CoroutineRunner",
        "patching": "HttpClientTransport Patcher intercept",
        "telemetry": "disable_telemetry",
    },
)
