"""The wire formats of the providers: one folder per dialect, and the modules that they share."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "conversations": "ConversationStore MAX_EXCHANGES PrefixCache",
        "decoding": "ALL_RULES RULES",
        "dialect": "Dialect HttpRequest HttpResponse request_metadata",
        "side_requests": "embed pack_floats",
        "streaming": "ByteTemplate FilledTemplate PLACEHOLDER SseEvent encode_sse"
        " parse_sse split_fixed split_reply_text split_words",
    },
)
