"""`offbook sandbox`: install a package in an empty folder, and load it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from offbook.cli_options import FILE_PATH, json_option, print_json, print_redacted

if TYPE_CHECKING:
    from offbook.sandbox.sandbox_folder import SandboxResult

EXAMPLE = """\b
Example:
  offbook sandbox .
  offbook sandbox ../pi-planner --expect-tools plan_propose,plan_list
  offbook sandbox . --smoke playbook.yaml --json
  offbook sandbox . --wheels ./wheels

\b
A folder with a package.json is packed, installed by npm and loaded in the real pi.
One with a pyproject.toml is built, installed in a new virtual environment, and its
entry points of the group offbook.extensions are loaded.

\b
Exit codes:
  0  the package installs and loads what is expected
  1  it has faults: each is printed with the output that shows it
  2  wrong usage, no package in the folder, or npm or pi is not installed
"""


@click.command("sandbox", epilog=EXAMPLE)
@click.argument("path", type=FILE_PATH, default=".")
@click.option(
    "--expect-tools", multiple=True, metavar="NAME,…", help="Tools that must exist; repeatable."
)
@click.option("--expect-extensions", type=click.IntRange(0), metavar="N", help="Their number.")
@click.option("--expect-skills", type=click.IntRange(0), metavar="N", help="Their number.")
@click.option("--smoke", type=FILE_PATH, metavar="FILE", help="A playbook to run with the package.")
@click.option("--kind", type=click.Choice(["auto", "npm", "python"]), default="auto")
@click.option("--wheels", type=FILE_PATH, metavar="DIR", help="Install from here, offline.")
@click.option("--allow-home-writes", is_flag=True, help="The package may write to HOME.")
@click.option(
    "--deadline",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds before everything is stopped.",
)
@json_option
def sandbox(  # noqa: PLR0913 - the options of the command
    path: Path,
    *,
    expect_tools: tuple[str, ...],
    expect_extensions: int | None,
    expect_skills: int | None,
    smoke: Path | None,
    kind: Any,
    wheels: Path | None,
    allow_home_writes: bool,
    deadline: float,
    as_json: bool,
) -> int:
    """Install a package of extensions as its users do, in an empty folder, and load it."""
    from offbook.sandbox.verify import verify_sandbox_install

    counts = {"extensions": expect_extensions, "skills": expect_skills}
    expect: dict[str, Any] = {key: count for key, count in counts.items() if count is not None}
    tools = [name.strip() for text in expect_tools for name in text.split(",") if name.strip()]
    result = verify_sandbox_install(
        path,
        expect={**expect, "tools": tools},
        smoke=smoke,
        kind=kind,
        wheels=wheels,
        deadline=deadline,
        allow_home_writes=allow_home_writes,
        check=False,
        progress=None if as_json else lambda step: click.echo(f"{step} …", err=True),
    )
    if as_json:
        print_json(result.to_json())
    else:
        print_redacted(_render(result))
    return int(not result.passed)


def _render(result: SandboxResult) -> str:
    """Return the verdict: what was loaded, the time of each step, and the faults."""
    loaded = result.loaded
    named = f"{result.package} {result.version}".strip()
    steps = ", ".join(f"{step.name} {step.seconds:.1f} s" for step in result.steps)
    lines = [
        f"{named}: {'passed' if result.passed else 'failed'}",
        f"  loaded in   {result.host}",
        f"  extensions  {loaded.extensions}",
        f"  tools       {', '.join(loaded.tools) or 'none'}",
        f"  skills      {', '.join(loaded.skills) or 'none'}",
    ]
    if loaded.commands:
        lines.append(f"  commands    {', '.join(loaded.commands)}")
    if result.smoke is not None:
        lines.append(f"  smoke       passed: {', '.join(result.smoke.events.tool_sequence())}")
    lines += [f"  steps       {steps}", *map(str, result.faults)]
    return "\n".join(lines)
