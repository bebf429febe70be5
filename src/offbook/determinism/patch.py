"""Functions put around those of others, once for however many want it, and taken away again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from threading import Lock
from typing import Any

Wrapper = Callable[..., Any]
"""Called with the original function first, then with what that would have been called with."""


class PatchRegistry:
    """Which functions have something around them, and for how many.

    The one who wants it last takes it away. Two runs at once, or one inside the other, share a
    patch: so what is put around must find out itself for whom it works, from a `ContextVar`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._laid: dict[tuple[object, str], _Patch] = {}

    def lay(self, owner: object, name: str, around: Wrapper) -> Callable[[], None]:
        """Put `around` around the function of this name; call the answer to take it away."""
        with self._lock:
            patch = self._laid.get((owner, name))
            if patch is None or not patch.stands:
                patch = self._laid[owner, name] = _Patch(owner, name)
            patch.add(around)
        return partial(self._lift, patch, around)

    def _lift(self, patch: _Patch, around: Wrapper) -> None:
        with self._lock:
            patch.drop(around)
            if patch.wanted:
                return
            patch.remove()
            if self._laid.get(patch.place) is patch:
                del self._laid[patch.place]


class _Patch:
    """One function, replaced: whatever is wanted around it is called, the latest first."""

    def __init__(self, owner: object, name: str) -> None:
        self.place = owner, name
        self.wanted: dict[Wrapper, int] = {}
        self._inherited = name not in vars(owner)
        self._original = self._call = getattr(owner, name)

        @wraps(self._original)
        def replaced(*args: Any, **named: Any) -> Any:
            return self._call(*args, **named)

        self._replaced = replaced
        setattr(owner, name, replaced)

    @property
    def stands(self) -> bool:
        """Whether nobody else has put theirs in its place since."""
        owner, name = self.place
        return vars(owner).get(name) is self._replaced

    def add(self, around: Wrapper) -> None:
        self.wanted[around] = self.wanted.get(around, 0) + 1
        self._chain()

    def drop(self, around: Wrapper) -> None:
        self.wanted[around] -= 1
        if not self.wanted[around]:
            del self.wanted[around]
        self._chain()

    def _chain(self) -> None:
        call = self._original
        for around in self.wanted:
            call = partial(around, call)
        self._call = call

    def remove(self) -> None:
        if not self.stands:
            return  # what somebody has put around ours stays, and ours lets all pass
        owner, name = self.place
        if self._inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, self._original)


apply_patch = PatchRegistry().lay
