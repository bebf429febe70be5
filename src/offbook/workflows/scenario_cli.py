"""The command `offbook scenario run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.cli_options import FILE_PATH, json_option, live_options, print_json

if TYPE_CHECKING:
    from offbook.workflows.scenario import ScenarioResult


@click.group("scenario", epilog="\b\nExample:\n  offbook scenario run scenarios/ --jobs 4")
def scenario() -> None:
    """Run scenario files."""


@scenario.command(
    "run",
    epilog="""\b
Example:
  offbook scenario run scenarios/ --jobs 4
  offbook scenario run flow.yaml --reports out --fail-on-flaky
  offbook scenario run auth.yaml --record
  offbook scenario run scenarios/ --junit out/junit.xml --ctrf out/ctrf.json

\b
Exit codes:
  0  every scenario passed
  1  a scenario failed, or was flaky with --fail-on-flaky
  2  wrong usage, or a file that cannot be read
""",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=FILE_PATH)
@click.option("--jobs", default=0, help="Scenarios to run at once. Default: one per core.")
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".offbook/reports"),
    show_default=True,
    help="Folder for the reports of each scenario.",
)
@click.option("--junit", type=FILE_PATH, help="Write one JUnit report of all scenarios.")
@click.option("--tap", type=FILE_PATH, help="Write one TAP report of all scenarios.")
@click.option("--tap13", type=FILE_PATH, help="The same in TAP 13, for prove.")
@click.option("--ctrf", type=FILE_PATH, help="Write one CTRF report of all scenarios.")
@click.option("--record", is_flag=True, help="Run the real agents and record their cassettes.")
@click.option("--fail-on-flaky", is_flag=True, help="Treat flaky scenarios as failures.")
@json_option
@live_options
def run_scenario_files(
    files: tuple[Path, ...],
    *,
    jobs: int,
    reports: Path,
    record: bool,
    fail_on_flaky: bool,
    as_json: bool,
    **combined: Path | None,
) -> int:
    """Run scenario files and folders of them, in parallel."""
    import asyncio

    import msgspec

    from offbook.workflows.scenario import find_scenarios, run_scenarios, write_reports

    # All files are read before the first scenario runs: a mistake in the last one costs no time.
    scenarios = find_scenarios(files)
    finished = 0

    def print_result(result: ScenarioResult) -> None:
        nonlocal finished
        finished += 1
        sign = "✗" if not result.passed else "~" if result.flaky else "✓"
        attempts = f", {result.attempts} attempts" if result.attempts > 1 else ""
        position = f" [{finished}/{len(scenarios)}]" if len(scenarios) > 1 else ""
        # With --json, stdout is for the JSON alone.
        click.echo(
            f"{sign} {result.name} ({result.seconds:.2f} s{attempts}){position}", err=as_json
        )
        for line in result.error.splitlines():
            click.echo(f"    {line}", err=as_json)
        if result.session and not result.passed:
            click.echo(f"    session: {result.session}", err=as_json)

    results = asyncio.run(
        run_scenarios(
            scenarios, jobs=jobs, reports=reports, recording=record, on_result=print_result
        )
    )
    write_reports(results, {name: path for name, path in combined.items() if path is not None})
    passed = sum(result.passed for result in results)
    failed = len(results) - passed
    flaky = sum(result.flaky for result in results)
    if as_json:
        rows = [msgspec.structs.asdict(result) for result in results]
        for row in rows:
            row.pop("suite")  # the reports have it; the JSON has results and evaluations
        print_json({"passed": passed, "failed": failed, "flaky": flaky, "scenarios": rows})
    else:
        click.echo(f"{passed} passed, {failed} failed, {flaky} flaky")
    return int(failed > 0 or (fail_on_flaky and flaky > 0))
