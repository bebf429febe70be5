"""What a client of an SDK computes again for each behaviour, computed once for a search."""

from __future__ import annotations

import marshal
import ssl
import sys
from collections.abc import Callable
from copy import copy
from typing import Any, cast

from offbook.determinism.run_context import apply_patch

MODULES = ("openai._utils._transform",)
SCALARS = frozenset({str, int, float, bool, type(None)})
DISCRIMINATORS = frozenset({"type", "role"})  # the keys whose values choose a type
MOST_FORMS = 4096
MARSHAL = 2  # the version: the bytes of later ones depend on more than the value


class SdkConversions:
    """Skips the conversions that are known to change nothing, in the SDKs that are loaded."""

    def __init__(self) -> None:
        self._unchanged: set[tuple[int, int, object]] = set()
        self._types: dict[int, object] = {}  # kept, so that no other type gets the id of one
        self._undo: dict[str, list[Callable[[], None]]] = {}

    def start(self) -> None:
        """Patch the SDKs that were loaded since the last call."""
        for name in MODULES:
            module = sys.modules.get(name)
            if module is not None and name not in self._undo:
                wrappers = {
                    "_transform_recursive": self._convert,
                    "_async_transform_recursive": self._convert_async,
                }
                self._undo[name] = [
                    apply_patch(module, function, wrapper)
                    for function, wrapper in wrappers.items()
                    if hasattr(module, function)  # another version may not have it
                ]

    def stop(self) -> None:
        """Remove the patches."""
        for undo in [undo for patches in self._undo.values() for undo in patches]:
            undo()
        self._undo.clear()

    def _convert(
        self, original: Callable[..., Any], data: object, *, annotation: Any, inner_type: Any = None
    ) -> Any:
        key = self._key(data, annotation, inner_type)
        if key in self._unchanged:
            return copy(data)
        converted = original(data, annotation=annotation, inner_type=inner_type)
        return self._note(key, data, converted)

    async def _convert_async(
        self, original: Callable[..., Any], data: object, *, annotation: Any, inner_type: Any = None
    ) -> Any:
        key = self._key(data, annotation, inner_type)
        if key in self._unchanged:
            return copy(data)
        converted = await original(data, annotation=annotation, inner_type=inner_type)
        return self._note(key, data, converted)

    def _key(
        self, data: object, annotation: object, inner_type: object
    ) -> tuple[int, int, object] | None:
        """Return the types and the form of JSON; None for anything else."""
        try:
            form = describe_form(data)
        except (TypeError, RecursionError):
            return None
        # The ids of the types: the hash of a union is computed from all its members.
        self._types[id(annotation)] = annotation
        self._types[id(inner_type)] = inner_type
        return id(annotation), id(inner_type), form

    def _note(self, key: tuple[int, int, object] | None, data: object, converted: Any) -> Any:
        if key is not None and len(self._unchanged) < MOST_FORMS and _same(data, converted):
            self._unchanged.add(key)
        return converted


def describe_form(value: object) -> object:
    """Return the keys and types of JSON, with the values of discriminators.

    Raises TypeError for other values: files, dates, models, and the SDK's marks for no value.
    """
    kind = type(value)
    if kind in SCALARS:
        return kind
    if kind is list:  # each item is converted alone, so their number and order do not matter
        return list, frozenset(map(describe_form, cast("list[object]", value)))
    if kind is not dict:
        raise TypeError(f"{kind.__name__} is not JSON")
    form: list[object] = []
    for key, item in cast("dict[object, object]", value).items():
        if type(key) is not str:
            raise TypeError(f"{type(key).__name__} is not a key of JSON")
        chosen = key in DISCRIMINATORS and type(item) is str
        form += (key, item if chosen else describe_form(item))
    return (dict, *form)


def _same(data: Any, converted: Any) -> bool:
    """Return whether two values are equal, in the types and the order of keys too."""
    try:
        return marshal.dumps(data, MARSHAL) == marshal.dumps(converted, MARSHAL)
    except ValueError:
        return False


# ------------------------------------------------------------------------- ssl contexts
# TLS contexts that are made once for a search.
#
# A client of an SDK reads the certificates of all authorities when it is made: up to 50 ms of CPU,
# several times what a behaviour takes. A search makes a client for each behaviour.


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
