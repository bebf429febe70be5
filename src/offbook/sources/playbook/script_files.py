"""Playbooks in files: a Python file with a `playbook`, or the same in YAML or JSON.

- when: Refund order 7
  do:
    - call: find_order
      with: {id: 7}
    - [{call: refund, with: {id: 7}}, {call: notify}]    # two calls in one message
    - say: Done.
- role: titles
  system: title generator
  do:
    - say: A refund
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, OffbookError, PlaybookError
from offbook.files import read_document, read_text, run_source
from offbook.sources.playbook.actions import Action, Role, Turn, call, fail, role, say, think, when
from offbook.sources.playbook.diagnostics import validate
from offbook.sources.playbook.playbook import Playbook

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = 'playbook = [when("…", [call("…", {…}), say("…")])]'


class _ActionEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the model does: exactly one of the first four."""

    call: str | None = None
    say: str | None = None
    think: str | None = None
    fail: str | None = None
    params: dict[str, Any] | None = msgspec.field(name="with", default=None)
    status: int | None = None
    retry_after: float | None = None


class _ScriptEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A turn or a role."""

    do: list[_ActionEntry | list[_ActionEntry]]
    when: str | None = None
    role: str | None = None
    system: str | None = None
    model: str | None = None
    first: str | None = None
    tools: list[str] | None = None


def read_script(path: Path) -> tuple[Turn | Role, ...]:
    """The turns and roles of a playbook file, checked as far as they can be without an agent."""
    try:
        script = _run_python(path) if path.suffix == ".py" else _read_parts(path)
        validate(script)
        Playbook().load(*script)
    except PlaybookError as error:
        where = f"{path}: {error.where}" if error.where else str(path)
        raise PlaybookError(error.what, where=where, hint=error.hint) from error
    if not script:
        raise FormatError("the playbook is empty", path=path, hint=f"write {EXAMPLE}")
    return script


def _run_python(path: Path) -> tuple[Turn | Role, ...]:
    read_text(path)  # says better than Python what is wrong with a file that is not there
    spec = spec_from_file_location(f"offbook_playbook_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FormatError("this is not a Python file", path=path)
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        run_source(module, path)
    except OffbookError:
        raise
    except Exception as error:
        raise FormatError(f"it raised {type(error).__name__}: {error}", path=path) from error
    finally:
        sys.path.pop(0)
    script = getattr(module, "playbook", None)
    if not isinstance(script, (list, tuple)):
        raise FormatError("it has no list called playbook", path=path, hint=f"write {EXAMPLE}")
    return tuple(cast("list[Turn | Role]", script))


def _read_parts(path: Path) -> tuple[Turn | Role, ...]:
    written = read_document(path, cast("Any", Any))
    if not isinstance(written, list):
        kind = "empty" if written is None else f"a {type(written).__name__}"
        raise FormatError(
            f"a playbook is a list of turns and roles; this is {kind}",
            path=path,
            hint='write - {when: "…", do: [{call: …, with: {…}}, {say: "…"}]}',
        )
    parts = cast("list[_ScriptEntry]", read_document(path, cast("Any", list[_ScriptEntry])))
    return tuple(_read_part(part, at, path) for at, part in enumerate(parts, 1))


def _read_part(part: _ScriptEntry, at: int, path: Path) -> Turn | Role:
    actions = [
        [_read_action(one, at, path) for one in does]
        if isinstance(does, list)
        else _read_action(does, at, path)
        for does in part.do
    ]
    known = (part.system, part.model, part.first, part.tools)
    if part.when is not None and part.role is None and known == (None,) * 4:
        return when(part.when, actions)
    if part.role is not None and part.when is None:
        system, model, first, tools = known
        return role(part.role, actions, system=system, model=model, first=first, tools=tools)
    raise FormatError(
        f"part {at} is neither a turn nor a role",
        path=path,
        hint="a turn has when: and do:, a role has role:, what it is known by, and do:",
    )


def _read_action(does: _ActionEntry, at: int, path: Path) -> Action:
    match does:
        case _ActionEntry(
            call=str(tool), say=None, think=None, fail=None, status=None, retry_after=None
        ):
            return call(tool, does.params)
        case _ActionEntry(call=None, params=None, say=None, think=None, fail=str(message)):
            return fail(message, status=does.status or 529, retry_after=does.retry_after)
        case _ActionEntry(
            call=None, params=None, think=None, fail=None, status=None, say=str(text)
        ):
            return say(text)
        case _ActionEntry(
            call=None, params=None, say=None, fail=None, status=None, think=str(text)
        ):
            return think(text)
        case _:
            raise FormatError(
                f"an action of part {at} is not one of call, say, think, fail",
                path=path,
                hint="call: goes with with:, fail: with status: and retry_after:",
            )
