"""The values that a user gives are decoded to their types; an error names the value."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.cli_options import refuse_together, refuse_without
from offbook.errors import UsageError
from offbook.files import require_file, require_folder, require_new
from offbook.options import (
    Count,
    Name,
    Seconds,
    check_fields,
    decide,
    decode,
    require_function,
    require_list,
    require_some,
)

QUOTES = "put the value in quotes to make it a text"


class Limits(msgspec.Struct, forbid_unknown_fields=True):
    runs: Count = 1
    seconds: list[Seconds] = []


@pytest.mark.parametrize(
    "value, kind, message",
    [
        (0, Count, "limit: expected an integer >= 1, got 0"),
        (True, Count, "limit: expected an integer, got true or false"),
        (float("nan"), Seconds, "limit: expected a number > 0, got nan"),
        (float("inf"), Seconds, "limit: expected a number <= 31536000, got inf"),
        ("", Name, "limit: expected a text of length >= 1, got ''"),
        ([1], dict, "limit: expected a mapping, got a list\nwrite it as key: value"),
        (5, str | None, f"limit: expected a text or nothing, got an integer\n{QUOTES}"),
        ({1: 2}, dict[str, int], f"limit: expected a text, got an integer\n{QUOTES}"),
        ({"runs": -1}, Limits, "limit.runs: expected an integer >= 1, got -1"),
        ({"seconds": [1, 0]}, Limits, "limit.seconds[1]: expected a number > 0, got 0"),
        ({"rnus": 1}, Limits, "limit.rnus: unknown key 'rnus'\ndid you mean 'runs'?"),
        ([], Limits, "limit: expected a mapping, got a list\nwrite it with keys: runs, seconds"),
    ],
)
def test_an_error_names_the_value_and_what_was_expected(value: Any, kind: Any, message: str):
    with pytest.raises(UsageError) as caught:
        decode(value, kind, "limit")
    assert str(caught.value) == message


def test_a_valid_value_is_returned_as_its_type():
    assert decode({"runs": 2, "seconds": (1,)}, Limits, "limit") == Limits(2, [1.0])


def test_the_fields_of_a_struct_that_was_constructed_are_checked():
    with pytest.raises(UsageError, match=r"^limits\.runs: expected an integer >= 1, got 0$"):
        check_fields(Limits(0), "limits")


WRONG: list[tuple[Callable[[Path], object], str]] = [
    (lambda _: require_list("ab", "names"), "names must be a list, got str"),
    (lambda _: require_some([], "no trace", where="runs"), "runs: no trace"),
    (lambda _: require_function(5, "hook"), "hook: expected a function, got int"),
    (lambda folder: require_file(folder / "trace.json", "trace"), "did you mean 'trace.jsonl'"),
    (lambda folder: require_file(folder, "trace"), "no such trace"),
    (lambda folder: require_folder(folder / "trace.jsonl"), "no such folder"),
    (lambda folder: require_new(folder / "trace.jsonl"), "the file exists already"),
    (lambda _: refuse_together(new="a", ran=True), "--new and --ran exclude each other"),
    (lambda _: refuse_without("--infer", out="a"), "--out has no effect without --infer"),
    (
        lambda _: refuse_without("--infer", event=("a",), out="a"),
        "--event and --out have no effect without --infer",
    ),
]


@pytest.mark.parametrize("check, message", WRONG)
def test_a_wrong_value_is_refused(check: Callable[[Path], object], message: str, tmp_path: Path):
    (tmp_path / "trace.jsonl").touch()
    with pytest.raises(UsageError) as caught:
        check(tmp_path)
    assert message in str(caught.value)


def is_refused(check: Callable[..., None], *args: Any, **options: object) -> bool:
    try:
        check(*args, **options)
    except UsageError:
        return True
    return False


@pytest.mark.parametrize("absent", [None, False, ()])
def test_an_option_that_is_not_given_excludes_nothing(absent: object):
    assert is_refused(refuse_together, record="a", replay="b")
    assert not is_refused(refuse_together, record="a", replay=absent)
    assert not is_refused(refuse_without, "--record", redact=absent)


def test_zero_is_a_value_that_was_given():
    with pytest.raises(UsageError):
        refuse_without("--record", number=0)


async def waits() -> bool:
    return False


def yields() -> Iterator[bool]:
    yield False


async def streams() -> AsyncIterator[bool]:
    yield False


@pytest.mark.parametrize(
    "result, decided",
    [
        (True, (True, "")),
        (False, (False, "it returned False")),
        ((True, "why"), (True, "")),
        ((False, "why"), (False, "why")),
        ((False, 7), (False, "7")),
        ((False, ""), (False, "it returned False")),
        (None, (None, "")),
        ([1, 2], ([1, 2], "")),
    ],
)
def test_a_condition_is_a_bool_or_a_bool_with_a_reason(result: object, decided: object):
    assert decide(result, "the condition") == decided


@pytest.mark.parametrize("condition", [waits, yields, streams])
def test_a_condition_that_never_ran_is_refused(condition: Callable[[], object]):
    with pytest.raises(UsageError, match=r"the condition returned .*, which never ran"):
        decide(condition(), "the condition")
