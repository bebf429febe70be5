"""Objects that a command names as MODULE:NAME."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from offbook.errors import UsageError, did_you_mean


def load_target(target: str) -> Any:
    """Import the object that MODULE:NAME names."""
    module_name, separator, name = target.partition(":")
    if not separator or not name:
        raise UsageError(f"expected MODULE:NAME, got {target!r}", hint="for example shop:world")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"cannot import {module_name}: {error}",
            hint="run the command in the folder of the module",
        ) from error
    if not hasattr(module, name):
        hint = did_you_mean(name, [known for known in vars(module) if not known.startswith("_")])
        raise UsageError(f"{module_name} has no {name!r}", hint=hint)
    return getattr(module, name)
