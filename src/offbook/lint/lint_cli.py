"""The command `offbook lint`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from offbook.cli_options import FILE_PATH, json_option, print_json
from offbook.errors import counted

EXAMPLE = """\b
Example:
  offbook lint tests/
  offbook lint tests/ --fix

A line with `# noqa: OB101` is not reported.

\b
Exit codes:
  0  nothing was found
  1  something was found, and not fixed
  2  wrong usage, or nothing to read
"""


@click.command(epilog=EXAMPLE)
@click.argument("paths", type=FILE_PATH, nargs=-1, required=True, metavar="PATH...")
@click.option("--fix", is_flag=True, help="Fix what has one certain fix.")
@json_option
def lint(paths: tuple[Path, ...], *, fix: bool, as_json: bool) -> int:
    """Find tests that prove nothing, and mocks and playbooks that nothing uses."""
    # Late: parsing Python is needed by this command only.
    from offbook.lint.lint_rules import fix_paths, lint_paths

    fixed = fix_paths(paths) if fix else 0
    result = lint_paths(paths)
    if as_json:
        print_json({**msgspec.to_builtins(result), "fixed": fixed})
        return int(bool(result.findings))
    for finding in result.findings:
        click.echo(str(finding))
    if fixed:
        click.echo(f"Fixed {counted(fixed, 'finding')}.")
    count, fixable = len(result.findings), sum(f.fix is not None for f in result.findings)
    if not count:
        click.echo(f"Nothing found in {counted(result.files, 'file')}.")
        return 0
    click.echo(f"Found {count} in {counted(result.files, 'file')}.")
    if fixable:
        click.echo(f"[*] {fixable} fixable with `--fix`.")
    return 1
