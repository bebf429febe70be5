"""The requests that real clients once sent."""

import json
from pathlib import Path

from offbook.exchange.dialects.dialect import Dialect, HttpRequest


def load_captures(data: Path, dialect: Dialect) -> list[tuple[str, HttpRequest]]:
    """Those that are written in this dialect, with the name of the client."""
    found = ((path, read_capture(path)) for path in sorted((data / "wire").glob("[!_m]*/*.json")))
    return [(path.parent.name, wire) for path, wire in found if dialect.claims(wire)]


def read_capture(path: Path) -> HttpRequest:
    """A request as it came."""
    saved = json.loads(path.read_text())
    body = saved["body"]
    return HttpRequest(
        saved["method"],
        saved["path"],
        {name.lower(): value for name, value in saved["headers"].items()},
        json.dumps(body).encode() if body else b"",
        "&".join(f"{name}={value}" for name, value in saved["query"].items()),
    )
