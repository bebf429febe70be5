"""Requests captured from real clients."""

import json
from pathlib import Path

from offbook.exchange.dialects import Dialect, HttpRequest


def load_captures(data: Path, dialect: Dialect) -> list[tuple[str, HttpRequest]]:
    """Return the captured requests in this dialect, with the name of the client."""
    actual = ((path, read_capture(path)) for path in sorted((data / "wire").glob("[!_m]*/*.json")))
    return [
        (path.parent.name, http_request)
        for path, http_request in actual
        if dialect.claims(http_request)
    ]


def read_capture(path: Path) -> HttpRequest:
    """Load a captured request."""
    saved = json.loads(path.read_text())
    body = saved["body"]
    return HttpRequest(
        saved["method"],
        saved["path"],
        {name.lower(): value for name, value in saved["headers"].items()},
        json.dumps(body).encode() if body else b"",
        "&".join(f"{name}={value}" for name, value in saved["query"].items()),
    )
