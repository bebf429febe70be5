"""Serves a source on the loopback interface, in the wire formats of the providers."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "connection": "Connection",
        "endpoint": "Endpoint Pacing",
        "http1": "CACHE_SIZE HeadCache RequestBuffer RequestHead parse_head",
        "server": "Server",
        "websocket": "WebSocket handshake",
        "wire_recording": "MAX_BYTES WireExchange",
    },
)
