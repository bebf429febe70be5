"""TLS contexts that are made once for a search.

A client of an SDK reads the certificates of all authorities when it is made: up to 50 ms of CPU,
several times what a behaviour takes. A search makes a client for each behaviour.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import apply_patch

if TYPE_CHECKING:
    from collections.abc import Callable


def share_ssl_contexts() -> Callable[[], None]:
    """Let equal calls of `ssl.create_default_context` return one context; return the undo."""
    made: dict[Any, ssl.SSLContext] = {}

    def create(original: Callable[..., ssl.SSLContext], *args: Any, **options: Any) -> Any:
        try:
            key = (args, *sorted(options.items()))
            if key not in made:
                made[key] = original(*args, **options)
        except TypeError:  # an option without a hash
            return original(*args, **options)
        return made[key]

    return apply_patch(ssl, "create_default_context", create)
