"""The wire formats of the providers: one folder per dialect, and the modules that they share."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "dialect": "ConversationStore Dialect HttpRequest HttpResponse MAX_EXCHANGES PrefixCache"
        " Provider request_metadata",
        "embeddings": "embed pack_floats",
        "provider_responses": "SseEvent parse_sse",
        "wire": "ALL_RULES ByteTemplate FilledTemplate PLACEHOLDER RULES encode_sse"
        " split_fixed split_reply_text split_words",
    },
)
