"""OpenAI's embeddings."""

from base64 import b64encode
from typing import cast

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.embeddings import embed, estimate_tokens, pack_floats
from offbook.exchange.messages import JSON

EMBEDDING_DIMENSIONS = {"text-embedding-3-large": 3072}


class ChatEmbeddingBody(msgspec.Struct, gc=False):
    """A request for embeddings."""

    model: str = ""
    input: str | list[str | int | list[int]] = ""
    encoding_format: str = "float"
    dimensions: int | None = None


_decoder = msgspec.json.Decoder(ChatEmbeddingBody)


def make_embeddings(raw: bytes) -> JSON:
    """Return the embedding of each text, or of each list of token numbers."""
    body = openai.decode_body(_decoder, raw)
    inputs = body.input
    is_batch = isinstance(inputs, list) and not (inputs and isinstance(inputs[0], int))
    texts = cast("list[str | list[int]]", inputs if is_batch else [inputs])
    size = body.dimensions or EMBEDDING_DIMENSIONS.get(body.model, 1536)
    if size < 1:
        raise ModelError("Invalid 'dimensions': expected a value >= 1.", status=400)
    tokens = sum(
        estimate_tokens(len(text)) if isinstance(text, str) else len(text) for text in texts
    )
    data: list[JSON] = []
    for index, text in enumerate(texts):
        vector: list[float] | str = embed(text, size)
        if body.encoding_format == "base64":
            vector = b64encode(pack_floats(vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}
