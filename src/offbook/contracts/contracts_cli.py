"""The command `offbook contract`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from offbook.cli_options import FILE_PATH, json_option, print_json, print_redacted
from offbook.errors import UsageError, counted, did_you_mean

if TYPE_CHECKING:
    from offbook.trace.event_contracts import ContractViolation
    from offbook.trace.events import Event

SHOWN = 20

EXAMPLE = """\b
Example:
  offbook contract run.jsonl --contracts contracts.json
  offbook contract traces/*.jsonl --infer > contracts.json
  offbook contract run.jsonl --infer --event tool.call --out contracts.json

\b
Edit the inferred file, and name it in pyproject.toml:
  [tool.offbook]
  contracts = "contracts.json"

\b
Exit codes:
  0  every event matches, and every contract was used; or contracts were inferred
  1  an event breaks a contract, or a contract matched no event
  2  wrong usage, a file that cannot be read, or nothing to infer from
"""


@click.command("contract", epilog=EXAMPLE)
@click.argument("traces", nargs=-1, required=True, type=FILE_PATH, metavar="TRACE…")
@click.option("--contracts", type=FILE_PATH, metavar="FILE", help="Default: [tool.offbook].")
@click.option("--infer", "infers", is_flag=True, help="Propose contracts instead, from the traces.")
@click.option("--event", multiple=True, metavar="NAME", help="Infer also for events of this name.")
@click.option("--out", type=FILE_PATH, metavar="FILE", help="Write the inferred .json file.")
@json_option
def contract(
    traces: tuple[Path, ...],
    *,
    contracts: Path | None,
    infers: bool,
    event: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> int:
    """Check stored traces by contracts, or infer contracts from traces.

    A contract without an event is not a pass. Inferred are the topics that were published, with
    the types of their payloads.
    """
    if infers:
        if contracts is not None:
            raise UsageError("--contracts and --infer exclude each other", hint="give one of them")
        return _infer(traces, event, out)
    if event or out is not None:
        raise UsageError("--event and --out have no effect without --infer")
    return _check(traces, contracts, as_json=as_json)


def _infer(traces: tuple[Path, ...], event: tuple[str, ...], out: Path | None) -> int:
    from offbook.contracts.contracts import infer_contracts
    from offbook.files import write_atomic

    seen: set[str] = set()
    inferred = infer_contracts(_read(traces, seen), event)
    for name in event:
        if name not in inferred.events:
            raise UsageError(f"no trace has an event {name!r}", hint=did_you_mean(name, seen))
    if not inferred.topics and not inferred.events:
        raise UsageError("the traces publish no topic", hint="name events: --event tool.call")
    text = msgspec.json.format(msgspec.json.encode(inferred), indent=2).decode()
    if out is None:
        print_redacted(text)
    else:
        write_atomic(out, text + "\n")
        click.echo(f"wrote {len(inferred.topics) + len(inferred.events)} contracts to {out}")
    return 0


def _check(traces: tuple[Path, ...], contracts: Path | None, *, as_json: bool) -> int:
    from offbook.trace.event_contracts import Contracts, project_contracts

    held = project_contracts() if contracts is None else Contracts.read(contracts)
    if held is None:
        raise UsageError(
            "no contracts", hint="give --contracts FILE, or [tool.offbook] contracts = …"
        )
    broken: list[ContractViolation] = []
    for event in _read(traces, set()):
        broken += held.check(event)
    if as_json:
        violations: list[dict[str, Any]] = [violation._asdict() for violation in broken]
        result = {"violations": violations, "unused": held.unused, "matched": held.matched}
        print_json({"passed": not broken and not held.unused, **result})
    else:
        lines = [f"{v}\n{v.hint}" if v.hint else str(v) for v in broken[:SHOWN]]
        lines += [f"… and {len(broken) - SHOWN} more"] if len(broken) > SHOWN else []
        lines += [f"{name}: unused, no event matched it" for name in held.unused]
        used = sum(held.matched.values())
        print_redacted(
            "\n".join(
                [*lines, f"{counted(used, 'event')} checked, {counted(len(broken), 'violation')}"]
            )
        )
    return int(bool(broken or held.unused))


def _read(traces: tuple[Path, ...], seen: set[str]) -> Iterator[Event]:
    from offbook.trace.reader import Trace, raise_if_corrupt

    for path in traces:
        trace = Trace(path)
        for event in trace:
            seen.add(event.event)
            yield event
        raise_if_corrupt(trace.faults, path)
