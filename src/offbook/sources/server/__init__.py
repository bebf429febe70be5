"""Serves a source on the loopback interface, in the wire formats of the providers."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "connection": "CACHE_SIZE Connection HeadCache RequestBuffer RequestHead parse_head",
        "endpoint": "Endpoint Pacing",
        "server": "Server",
        "websocket": "WebSocket handshake",
        "wire_recording": "MAX_BYTES WireExchange",
    },
)
