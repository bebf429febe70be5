"""Functions that tests write may leave out the arguments that they do not need."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


def fit_arity(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, given only as many arguments as it takes."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C that does not tell
        return function
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return function
    taken = sum(parameter.kind in POSITIONAL for parameter in parameters)

    def fitted(*args: Any) -> Any:
        return function(*args[:taken])

    return fitted
