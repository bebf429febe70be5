"""The commands `offbook eval …`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbook.cli_options import FILE_PATH, json_option, print_json, print_redacted
from offbook.errors import UsageError
from offbook.files import write_atomic

if TYPE_CHECKING:
    from offbook.evals.pack_run import FinishedRun, Progress, RunProgress

FORMATS = ("junit", "tap", "tap13", "ctrf", "json", "markdown")
PROGRESS_SECONDS = 0.1
EXAMPLE = """\b
Example:
  offbook eval new evals/offbook.eval.toml
  offbook eval run evals/
  offbook eval run pack.toml --trials 5 --jobs 2 --report junit=evals.xml
  offbook eval list
  offbook eval show latest
  offbook eval compare 20261115 latest

\b
Exit codes:
  0  every blocking case passed
  1  a blocking case failed, or the run was stopped
  2  wrong usage, or a pack that cannot be read
"""


@click.group("eval", epilog=EXAMPLE)
def evals() -> None:
    """Run eval packs, list and compare their results."""


# --- Running


def _parse_shard(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, int]:
    first, sign, count = value.partition("/")
    ok = sign and first.isdecimal() and count.isdecimal()
    if not ok or not 1 <= int(first) <= int(count):
        raise click.BadParameter(f"expected i/n with 1 ≤ i ≤ n, got {value!r}; write 1/4")
    return int(first), int(count)


@evals.command("run", epilog=EXAMPLE)
@click.argument("packs", nargs=-1, type=FILE_PATH, metavar="PACK…")
@click.option(
    "--package", is_flag=True, help="Run the packs of installed packages and of pyproject.toml."
)
@click.option("--output", type=FILE_PATH, help="Directory of the results.")
@click.option(
    "--resume", metavar="RUN", default="", help="Continue an interrupted run: latest, or its id."
)
@click.option("--case", "only", multiple=True, metavar="ID", help="Run only this case; repeatable.")
@click.option("--trials", type=click.IntRange(min=1), help="Run each case so many times.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes."
)
@click.option(
    "--shard", default="1/1", callback=_parse_shard, metavar="I/N", help="Run one of N parts."
)
@click.option(
    "--cost-limit", type=click.FloatRange(min=0), metavar="USD", help="Stop at this cost."
)
@click.option("--cache", is_flag=True, help="Use results of earlier runs with the same content.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds for a case.",
)
@click.option("--live", is_flag=True, help="Allow real models.")
@click.option(
    "--judge", default="", metavar="FILE|PROVIDER", help="The judge of llm-judge rubrics."
)
@click.option("--judge-model", default="", metavar="NAME", help="The model of the judge.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where cases run.",
)
@click.option(
    "--address", default="", metavar="URL", help="The Ray cluster; without it, one on this machine."
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FORMAT[=FILE]",
    help=f"Write a report: {', '.join(FORMATS)}.",
)
@json_option
def run_command(packs: tuple[Path, ...], **given: object) -> int:
    """Run eval packs: files, or folders with offbook.eval.toml."""
    return _run(packs, given)


def _run(packs: tuple[Path, ...], given: dict[str, object]) -> int:
    from offbook.evals.pack_file import find_packs
    from offbook.evals.pack_run import RunOptions, run_pack
    from offbook.evals.run_directory import find_run, read_plan

    reports = [_parse_report(str(text)) for text in given.pop("reports") or ()]  # type: ignore[union-attr]
    as_json, package = bool(given.pop("as_json")), bool(given.pop("package"))
    resume = str(given.pop("resume"))
    output = given.pop("output")
    files = list(packs)
    if package:
        from offbook.evals.package_packs import find_package_packs

        files += find_package_packs()
    if resume:
        folder = find_run(resume)
        output = folder
        files = files or [Path(path) for path in read_plan(folder).packs]
    if not files:
        raise UsageError(
            "no eval pack given", hint="offbook eval run PACK, or write one: offbook eval new"
        )
    found = find_packs(files)
    options = RunOptions(output=str(output or ""), resume=bool(resume), **given)  # type: ignore[arg-type]
    try:
        run = run_pack(found, options, _show_progress())
    finally:
        _clear_progress()
    _print_run(run, found, reports, as_json=as_json)
    return 0 if run.summary.passed_gate else 1


def _parse_report(text: str) -> tuple[str, Path | None]:
    name, _, file = text.partition("=")
    if name not in FORMATS:
        from offbook.errors import did_you_mean

        raise UsageError(f"unknown report {name!r}", hint=did_you_mean(name, FORMATS))
    return name, Path(file) if file else None


def _show_progress() -> Progress | None:
    """Return a function that shows the progress: on a terminal only."""
    if not sys.stderr.isatty():
        return None
    shown = 0.0

    def show(state: RunProgress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < PROGRESS_SECONDS and state.done < state.total:
            return
        shown = now
        left = state.seconds_left
        parts = [f"{state.done}/{state.total} cases", f"{state.failed} failed"]
        if state.cost_usd:
            parts.append(f"{state.cost_usd:.4f} USD")
        if left is not None:
            parts.append(f"{left:.0f} s left")
        click.echo(f"\r\x1b[K{', '.join(parts)}", err=True, nl=False)

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)


def _print_run(
    run: FinishedRun, packs: list[Path], reports: list[tuple[str, Path | None]], *, as_json: bool
) -> None:
    from offbook.evals.eval_reports import (
        github_annotations,
        render_table,
        report_json,
        write_step_summary,
    )

    to_stdout = [name for name, file in reports if file is None]
    for name, file in reports:
        text = _render(name, run)
        if file is None:
            print_redacted(text)
        else:
            write_atomic(file, text)
    if as_json:
        print_json(report_json(run))
    elif not to_stdout:
        for line in render_table(run):
            print_redacted(line)
        click.echo(f"results: {run.folder}")
    if os.environ.get("GITHUB_ACTIONS"):
        write_step_summary(run)
        for line in github_annotations(run, packs):
            click.echo(line, err=True)


def _render(name: str, run: FinishedRun) -> str:
    import msgspec

    from offbook.evals import eval_reports

    if name == "markdown":
        return eval_reports.render_markdown(run)
    if name == "json":
        encoded = msgspec.json.encode(eval_reports.report_json(run), enc_hook=repr)
        return msgspec.json.format(encoded).decode() + "\n"
    from offbook.reports.ctrf import CtrfReport
    from offbook.reports.junit import JUnitReport
    from offbook.reports.tap import Tap13Report, TapReport

    kinds = {"junit": JUnitReport, "tap": TapReport, "tap13": Tap13Report, "ctrf": CtrfReport}
    return kinds[name]().render(*eval_reports.to_suites(run))
