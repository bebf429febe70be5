"""The commands `offbook contract infer` and `offbook contract check`."""

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
  offbook contract infer traces/*.jsonl --out contracts.json
  offbook contract check run.jsonl --contracts contracts.json
"""

INFER_EXAMPLE = """\b
Example:
  offbook contract infer traces/*.jsonl > contracts.json
  offbook contract infer run.jsonl --event tool.call --out contracts.json

\b
Then edit the file, and name it in pyproject.toml:
  [tool.offbook]
  contracts = "contracts.json"

\b
Exit codes:
  0  contracts were inferred
  2  wrong usage, an unreadable trace, or nothing to infer from
"""

CHECK_EXAMPLE = """\b
Example:
  offbook contract check run.jsonl --contracts contracts.json

\b
Exit codes:
  0  every event matches, and every contract was used
  1  an event breaks a contract, or a contract matched no event
  2  wrong usage, or a file that cannot be read
"""


@click.group("contract", epilog=EXAMPLE)
def contract() -> None:
    """Check the events of runs by schemas, and infer the schemas from traces."""


@contract.command("infer", epilog=INFER_EXAMPLE)
@click.argument("traces", nargs=-1, required=True, type=FILE_PATH, metavar="TRACE…")
@click.option("--event", multiple=True, metavar="NAME", help="Also for events of this name.")
@click.option("--out", type=FILE_PATH, metavar="FILE", help="Write a .json file.")
def infer(traces: tuple[Path, ...], *, event: tuple[str, ...], out: Path | None) -> int:
    """Propose contracts: the topics that were published, with the types of their payloads."""
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


@contract.command("check", epilog=CHECK_EXAMPLE)
@click.argument("traces", nargs=-1, required=True, type=FILE_PATH, metavar="TRACE…")
@click.option("--contracts", type=FILE_PATH, metavar="FILE", help="Default: [tool.offbook].")
@json_option
def check(traces: tuple[Path, ...], *, contracts: Path | None, as_json: bool) -> int:
    """Check stored traces by contracts. A contract without an event is not a pass."""
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
