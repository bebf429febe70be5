"""Compressed request bodies, which few clients send."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.sources.server.connection import BODY_LIMIT

if TYPE_CHECKING:
    from offbook.exchange.dialects.dialect import HttpRequest

GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
SUPPORTED = {"gzip", "x-gzip", "deflate"}


def decompress(request: HttpRequest) -> HttpRequest:
    """Return a request with its body as it was before; raise `ModelError` if it cannot be read."""
    headers = dict(request.headers)
    encoding = headers.pop("content-encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        return request
    if encoding not in SUPPORTED:
        known = ", ".join(sorted(SUPPORTED))
        raise ModelError(f"unsupported content-encoding {encoding!r}: use {known}", status=415)
    stream = zlib.decompressobj(GZIP_OR_ZLIB)
    try:
        body = stream.decompress(request.body, BODY_LIMIT)
    except zlib.error as error:
        raise ModelError(f"the body is not {encoding}: {error}", status=400) from error
    if stream.unconsumed_tail:
        raise ModelError(f"the body exceeds {BODY_LIMIT} bytes", status=413)
    if not stream.eof:
        raise ModelError(f"the body is not {encoding}: it is incomplete", status=400)
    return msgspec.structs.replace(request, headers=headers, body=body)
