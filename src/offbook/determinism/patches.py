"""Functions put around those of others, once for however many want it, and taken away again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any

Around = Callable[..., Any]
"""Called with the original function first, then with what that would have been called with."""


class Patches:
    """Which functions have something around them, and for how many.

    The one who wants it last takes it away. Two runs at once, or one inside the other, share a
    patch: so what is put around must find out itself for whom it works, from a `ContextVar`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._laid: dict[tuple[object, str, Around], _Patch] = {}

    def lay(self, owner: object, name: str, around: Around) -> Callable[[], None]:
        """Put `around` around the function of this name; call the answer to take it away."""
        key = (owner, name, around)
        with self._lock:
            patch = self._laid.get(key)
            if patch is None:
                patch = self._laid[key] = _Patch(owner, name, around)
            patch.wanted += 1
        return lambda: self._lift(key)

    def _lift(self, key: tuple[object, str, Around]) -> None:
        with self._lock:
            patch = self._laid[key]
            patch.wanted -= 1
            if not patch.wanted:
                del self._laid[key]
                patch.remove()


class _Patch:
    """One function, replaced."""

    def __init__(self, owner: object, name: str, around: Around) -> None:
        self.wanted = 0
        self._owner = owner
        self._name = name
        self._inherited = name not in vars(owner)
        self._original = original = getattr(owner, name)

        @wraps(original)
        def replaced(*args: Any, **named: Any) -> Any:
            return around(original, *args, **named)

        self._replaced = replaced
        setattr(owner, name, replaced)

    def remove(self) -> None:
        if vars(self._owner).get(self._name) is not self._replaced:
            return  # somebody has put theirs around ours since: it stays, and ours lets all pass
        if self._inherited:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)


lay = Patches().lay
