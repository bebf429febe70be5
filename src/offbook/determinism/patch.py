"""Wrappers around functions of other libraries: shared by all users, removed by the last.

undo = apply_patch(socket.socket, "connect", wrapper)   # wrapper(original, *args)
...
undo()
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from threading import Lock
from typing import Any

Wrapper = Callable[..., Any]
"""Called with the original function first, then with the arguments of the call."""


class PatchRegistry:
    """The patched functions of this process.

    Two runs at once, or one inside the other, share a patch, and the last to undo removes it. So
    a wrapper must find out from a `ContextVar` which run it works for.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._patches: dict[tuple[object, str], _Patch] = {}

    def apply(self, owner: object, name: str, wrapper: Wrapper) -> Callable[[], None]:
        """Wrap the function of this name; return a function that undoes it."""
        with self._lock:
            patch = self._patches.get((owner, name))
            if patch is None or not patch.in_effect:
                patch = self._patches[owner, name] = _Patch(owner, name)
            patch.add(wrapper)
        return partial(self._undo, patch, wrapper)

    def _undo(self, patch: _Patch, wrapper: Wrapper) -> None:
        with self._lock:
            patch.discard(wrapper)
            if patch.users:
                return
            patch.restore()
            if self._patches.get(patch.target) is patch:
                del self._patches[patch.target]


class _Patch:
    """One replaced function. Its wrappers are called from the latest to the first."""

    def __init__(self, owner: object, name: str) -> None:
        self.target = owner, name
        self.users: dict[Wrapper, int] = {}
        self._inherited = name not in vars(owner)
        self._original = self._call = getattr(owner, name)

        @wraps(self._original)
        def replacement(*args: Any, **named: Any) -> Any:
            return self._call(*args, **named)

        self._replacement = replacement
        setattr(owner, name, replacement)

    @property
    def in_effect(self) -> bool:
        """True unless another library has patched the function since."""
        owner, name = self.target
        return vars(owner).get(name) is self._replacement

    def add(self, wrapper: Wrapper) -> None:
        self.users[wrapper] = self.users.get(wrapper, 0) + 1
        self._chain()

    def discard(self, wrapper: Wrapper) -> None:
        self.users[wrapper] -= 1
        if not self.users[wrapper]:
            del self.users[wrapper]
        self._chain()

    def _chain(self) -> None:
        call = self._original
        for wrapper in self.users:
            call = partial(wrapper, call)
        self._call = call

    def restore(self) -> None:
        if not self.in_effect:
            return  # the patch of another library calls ours, which now calls the original only
        owner, name = self.target
        if self._inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, self._original)


apply_patch = PatchRegistry().apply
