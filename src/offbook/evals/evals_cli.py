"""The commands `offbook eval …`."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from offbook.cli_options import (
    FILE_PATH,
    FiniteFloat,
    ProgressLine,
    address_option,
    echo,
    engine_option,
    jobs_option,
    json_option,
    live_options,
    print_json,
    refuse_together,
    refuse_without,
)
from offbook.errors import UsageError, require_known
from offbook.files import write_atomic
from offbook.options import require_some

if TYPE_CHECKING:
    from offbook.evals.pack_run import FinishedRun, RunProgress

FORMATS = ("junit", "tap", "tap13", "ctrf", "json", "markdown")
RATE = FiniteFloat(min=1)
EXAMPLE = """\b
Example:
  offbook eval new evals/offbook.eval.toml
  offbook eval run evals/
  offbook eval run pack.toml --trials 5 --jobs 2 --report junit=evals.xml
  offbook eval run pack.toml --calibrate --judge judge.yaml
  offbook eval run prompts.json --settings labels.toml
  offbook eval list
  offbook eval list --sql "select id, status from results where status <> 'pass'"
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


def _parse_where(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    for text in value:
        if "=" not in text:
            raise click.BadParameter(f"expected KEY=VALUE, got {text!r}")
    return tuple((text.partition("=")[0], text.partition("=")[2]) for text in value)


@evals.command("run", epilog=EXAMPLE)
@click.argument("packs", nargs=-1, type=FILE_PATH, metavar="FILE…")
@click.option(
    "--package", is_flag=True, help="Run the packs of installed packages and of pyproject.toml."
)
@click.option("--output", type=FILE_PATH, help="Directory of the results.")
@click.option(
    "--resume", metavar="RUN", default="", help="Continue an interrupted run: latest, or its id."
)
@click.option("--case", "only", multiple=True, metavar="ID", help="Run only this case; repeatable.")
@click.option(
    "--where",
    multiple=True,
    callback=_parse_where,
    metavar="KEY=VALUE",
    help="Run only cases with this metadata; repeatable.",
)
@click.option("--by", multiple=True, metavar="KEY", help="A table by this metadata; repeatable.")
@click.option("--retry-errors", is_flag=True, help="With --resume: run trials with an error again.")
@click.option("--trials", type=click.IntRange(min=1), help="Run each case so many times.")
@jobs_option
@click.option(
    "--shard", default="1/1", callback=_parse_shard, metavar="I/N", help="Run one of N parts."
)
@click.option("--cost-limit", type=FiniteFloat(min=0), metavar="USD", help="Stop at this cost.")
@click.option("--cache", is_flag=True, help="Use results of earlier runs with the same content.")
@click.option(
    "--timeout",
    type=FiniteFloat(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds for a case.",
)
@click.option("--live", is_flag=True, help="Allow real models.")
@click.option("--requests-per-minute", type=RATE, help="Limit the requests to real models.")
@click.option("--tokens-per-minute", type=RATE, help="Limit the tokens of real models.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Repeat requests that fail at a real provider, as it says in retry-after.",
)
@click.option("--calibrate", is_flag=True, help="Score the judges on the labelled examples.")
@click.option("--rubric", default="", metavar="ID", help="Calibrate the judge of this rubric only.")
@click.option(
    "--min-kappa", type=FiniteFloat(-1), help="Exit with 1 if a calibrated judge has less."
)
@click.option("--settings", type=FILE_PATH, help="Labels, rules, costs and gates of a classifier.")
@click.option("--max-cases", type=click.IntRange(min=0), help="Classify the first prompts only.")
@click.option(
    "--model", default="", metavar="PROVIDER:NAME|FILE", help="A model as the classifier."
)
@click.option(
    "--judge", default="", metavar="FILE|PROVIDER", help="The judge of llm-judge rubrics."
)
@click.option("--judge-model", default="", metavar="NAME", help="The model of the judge.")
@engine_option
@address_option
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FORMAT[=FILE]",
    help=f"Write a report: {', '.join(FORMATS)}.",
)
@json_option
@live_options
@click.pass_context
def run_command(context: click.Context, packs: tuple[Path, ...], **given: Any) -> int:
    """Run evals: packs or folders with packs, a context manifest, or labelled prompts.

    The kind of a file is recognised: a manifest of ways to assemble a context is scored without a
    model; a JSON list of prompts with their right labels is given to a classifier.
    """
    kind = _kind_of_eval(packs, given)
    for name in given:
        if name not in OPTIONS_OF[kind] and _is_given(context, name):
            option = name.removeprefix("as_").replace("_", "-")
            raise UsageError(f"--{option} has no effect on {KIND_NAMES[kind]}", where=str(packs[0]))
    return RUNNERS[kind](packs, given)


KIND_NAMES = {
    "pack": "a pack",
    "context": "a context manifest",
    "prompts": "labelled prompts",
    "judge": "a calibration",
}
OPTIONS_OF = {
    "pack": {
        *("package", "output", "resume", "only", "trials", "jobs", "shard", "cost_limit", "cache"),
        *("timeout", "live", "judge", "judge_model", "engine", "address", "reports", "as_json"),
        *("where", "by", "retry_errors", "requests_per_minute", "tokens_per_minute", "retries"),
    },
    "context": {"output", "as_json"},
    "prompts": {"output", "settings", "max_cases", "live", "model", "as_json"},
    "judge": {"calibrate", "rubric", "min_kappa", "judge", "judge_model", "live", "as_json"},
}


def _is_given(context: click.Context, name: str) -> bool:
    from click.core import ParameterSource

    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _kind_of_eval(paths: tuple[Path, ...], given: dict[str, Any]) -> str:
    """Return the kind of eval of a command line: by its options, and by the content of the file."""
    if given["calibrate"]:
        return "judge"
    if given["settings"] is not None:
        return "prompts"
    from offbook.evals.pack_file import find_single_case

    key = find_single_case(paths[0]) if len(paths) == 1 else ""
    return {"manifest": "context", "dataset": "prompts"}.get(key, "pack")


def _run_packs(packs: tuple[Path, ...], given: dict[str, Any]) -> int:
    from offbook.evals.pack_file import find_packs, find_skipped_packs
    from offbook.evals.pack_run import RunOptions, run_pack
    from offbook.evals.run_directory import find_run, read_plan

    options = {name: given[name] for name in RunOptions.__struct_fields__ if name in given}
    reports = [_parse_report(text) for text in given["reports"]]
    outputs = [f"--report {name}" for name, file in reports if file is None]
    outputs += ["--json"] * given["as_json"]
    if len(outputs) > 1:
        hint = f"{outputs[0]}=FILE"
        raise UsageError(f"{' and '.join(outputs)} write to the same stdout", hint=hint)
    files = list(packs)
    if given["package"]:
        from offbook.evals.pack_file import find_package_packs

        files += find_package_packs()
    if not given["resume"]:
        refuse_without("--resume RUN", retry_errors=given["retry_errors"])
    else:
        folder = options["output"] = find_run(given["resume"])
        files = files or [Path(path) for path in read_plan(folder).packs]
    hint = "offbook eval run PACK, or write one: offbook eval new"
    require_some(files, "no eval pack given", hint=hint)
    found = find_packs(files)
    for path in [pack for file in files if file.is_dir() for pack in find_skipped_packs(file)]:
        echo(f"skipped: {path} (a folder is searched for *.eval.toml)", err=True)
    options |= {"output": str(options["output"] or ""), "resume": bool(given["resume"])}
    line = ProgressLine()
    show = partial(_show_run, line) if line.is_live else None
    try:
        run = run_pack(found, RunOptions(**options), show)
    finally:
        line.clear()
    _print_run(run, found, reports, as_json=given["as_json"])
    return 0 if run.summary.passed_gate else 1


def _parse_report(text: str) -> tuple[str, Path | None]:
    name, _, file = text.partition("=")
    require_known("unknown report", name, FORMATS)
    return name, Path(file) if file else None


def _show_run(line: ProgressLine, state: RunProgress) -> None:
    """Show the progress of a run; its end at once."""

    def describe() -> str:
        parts = [f"{state.done}/{state.total} cases", f"{state.failed} failed"]
        if state.cost_usd:
            parts.append(f"{state.cost_usd:.4f} USD")
        if (seconds := state.seconds_left) is not None:
            parts.append(f"{seconds:.0f} s left")
        return ", ".join(parts)

    line.show(describe, at_once=state.done == state.total)


def _print_run(
    run: FinishedRun, packs: list[Path], reports: list[tuple[str, Path | None]], *, as_json: bool
) -> None:
    from offbook.evals.eval_reports import (
        github_annotations,
        render_markdown,
        render_table,
        report_json,
    )
    from offbook.reports.github import write_commands, write_step_summary

    to_stdout = [name for name, file in reports if file is None]
    for name, file in reports:
        text = _render(name, run)
        if file is None:
            echo(text)
        else:
            write_atomic(file, text)
    if as_json:
        print_json(report_json(run))
    elif not to_stdout:
        for line in render_table(run):
            echo(line)
        echo(f"results: {run.folder}")
    if os.environ.get("GITHUB_ACTIONS"):
        write_step_summary(render_markdown(run))
        lines = [f"{line}\n" for line in github_annotations(run, packs)]
        write_commands("".join(lines), sys.stderr)


def _render(name: str, run: FinishedRun) -> str:
    import msgspec

    from offbook.evals import eval_reports

    if name == "markdown":
        return eval_reports.render_markdown(run)
    if name == "json":
        encoded = msgspec.json.encode(eval_reports.report_json(run), enc_hook=repr)
        return msgspec.json.format(encoded).decode() + "\n"
    from offbook.reports.report import find_report

    return find_report(name).render(*eval_reports.to_suites(run))


# --- Looking at results


@evals.command("list", epilog=EXAMPLE)
@click.argument("runs", nargs=-1, metavar="[RUN…]")
@click.option("--sql", metavar="QUERY", help="Query the table `results`: a row for each trial.")
@json_option
def list_command(runs: tuple[str, ...], *, sql: str | None, as_json: bool) -> int:
    """List the last runs, the latest first, or the answer to a query of their results (DuckDB).

    RUN is an id, or the directory that --output named; without one, all runs are read.
    """
    from offbook.evals.run_directory import find_run

    folders = [find_run(run) for run in runs]
    if sql is not None:
        from offbook.evals.run_directory import query_results, render_rows

        names, found = query_results(sql, folders)
        if as_json:
            print_json([dict(zip(names, row, strict=True)) for row in found])
        else:
            echo("\n".join(render_rows(names, found)))
        return 0
    from offbook.errors import FormatError
    from offbook.evals.run_directory import list_runs, read_summary

    rows: list[dict[str, object]] = []
    for folder in folders or list_runs():
        try:
            summary = read_summary(folder)
        except FormatError:
            rows.append({"id": folder.name, "result": "unfinished"})
            continue
        gate = "passed" if summary.passed_gate else "failed"
        counts = {"passed": summary.passed, "total": summary.total, "packs": summary.packs}
        rows.append({"id": folder.name, "result": gate, **counts})
    if as_json:
        print_json(rows)
    elif not rows:
        echo("no runs yet; start one: offbook eval run PACK")
    for row in [] if as_json else rows:
        counts = f"{row['passed']}/{row['total']}" if "total" in row else ""
        echo(f"{row['id']}  {row['result']}  {counts}".rstrip())
    return 0


@evals.command("show", epilog=EXAMPLE)
@click.argument("run", default="latest")
@click.argument("case", required=False)
@click.option("--by", multiple=True, metavar="KEY", help="A table by this metadata; repeatable.")
@json_option
def show_command(run: str, case: str | None, *, by: tuple[str, ...], as_json: bool) -> int:
    """Show a run, or one case of it with all its checks."""
    from offbook.evals.eval_reports import mark_of, render_counts, render_slices
    from offbook.evals.run_directory import (
        find_results,
        find_run,
        read_results,
        read_summary,
        summarize_cases,
        summarize_slices,
    )

    folder = find_run(run)
    if case is None:
        summary = read_summary(folder)
        if by:
            slices = summarize_slices(summarize_cases(read_results(folder)), by)
            summary = structs.replace(summary, slices=tuple(slices))
        if as_json:
            print_json(summary)
            return 0
        for row in summary.failing:
            echo(f"{mark_of(row):<8} {row.id}: {'; '.join(row.failures)}")
        for line in (*render_slices(summary.slices), *render_counts(summary)):
            echo(line)
        return 0
    results = find_results(folder, case)
    if not results:
        ids = {result.id for result in read_results(folder)}
        require_known("no case", case, ids, where=folder.name)
    if as_json:
        print_json(results)
        return 0
    for result in results:
        echo(f"{result.status.upper()} {result.id} trial {result.trial}, {result.millis:g} ms")
        for verdict in result.verdicts:
            message = verdict.message.removeprefix(f"{verdict.check.removesuffix(': judge')}: ")
            if not message and (reason := verdict.context.get("reasoning")):
                message = f"score {verdict.actual:.2f}: {reason}"
            echo(f"  {verdict.status:<8} {verdict.check}: {message}".rstrip(": "))
        for text in filter(None, (result.error, result.output)):
            echo(f"  {text}")
        if result.trace:
            echo(f"  trace: {result.trace}")
    return 0


@evals.command("compare", epilog=EXAMPLE)
@click.argument("run")
@click.argument("other", default="latest")
@click.option(
    "--fail-on",
    type=click.Choice(["significant", "regression", "slice-regression"]),
    default="significant",
    show_default=True,
    help="Fail if the pass rate fell significantly, if any case regressed, or any slice of --by.",
)
@click.option("--by", multiple=True, metavar="KEY", help="Compare by this metadata; repeatable.")
@click.option("--markdown", is_flag=True, help="Print a comment for a pull request.")
@json_option
def compare_command(
    run: str, other: str, *, fail_on: str, by: tuple[str, ...], markdown: bool, as_json: bool
) -> int:
    """Compare two runs of the same cases."""
    from offbook.evals.eval_reports import (
        compare_runs,
        render_comparison,
        render_comparison_markdown,
    )
    from offbook.evals.run_directory import find_run

    refuse_together(markdown=markdown, json=as_json)
    if fail_on == "slice-regression" and not by:
        raise UsageError("--fail-on slice-regression has no effect without --by KEY")
    comparison = compare_runs(find_run(run), find_run(other), by)
    if as_json:
        print_json(comparison)
    elif markdown:
        echo(render_comparison_markdown(comparison))
    else:
        for line in render_comparison(comparison):
            echo(line)
    failed = {
        "significant": comparison.fell,
        "regression": comparison.regressed,
        "slice-regression": bool(comparison.fallen_slices),
    }
    return int(failed[fail_on])


# --- Writing packs


@evals.command("new", epilog=EXAMPLE)
@click.argument("pack", type=FILE_PATH, default=Path("evals/offbook.eval.toml"))
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=FILE_PATH,
    help="A trace, run record or test file to make cases of; repeatable.",
)
@click.option("--schema", is_flag=True, help="Print the JSON schema of a pack, for editors.")
def new_command(pack: Path, *, sources: tuple[Path, ...], schema: bool) -> int:
    """Write a first pack that passes, or a pack from existing traces."""
    from offbook.evals.builders import render_schema, write_first_pack, write_pack_from

    if schema:
        echo(render_schema(), nl=False)
        return 0
    for path in write_pack_from(sources, pack) if sources else write_first_pack(pack):
        echo(f"wrote {path}")
    echo(f"run it: offbook eval run {pack}")
    return 0


# --- Other evals


def _run_single(paths: tuple[Path, ...], given: dict[str, Any]) -> int:
    """Run the file of a context eval or of a classifier: a pack with one case.

    The files of its report are copied to the folder that the option --output names.
    """
    from offbook.evals.case_evaluation import REPORTS
    from offbook.evals.case_kind import ClassifierOptions
    from offbook.evals.classifier_eval import open_model
    from offbook.evals.pack_run import RunOptions, run_pack
    from offbook.evals.run_directory import read_results

    model, settings = str(given["model"]), given["settings"]
    if model or given["live"]:
        open_model(model, Path(), live=given["live"])  # a wrong name is wrong usage
    model = str(Path(model).absolute()) if Path(model).is_file() else model
    classifier = ClassifierOptions(
        str(settings.absolute()) if settings else "", model, given["max_cases"]
    )
    run = run_pack(paths, RunOptions(live=given["live"], classifier=classifier))
    (result,) = read_results(run.folder)
    if result.report is None:
        raise UsageError("; ".join(result.problems))
    files = sorted((run.folder / REPORTS / result.id).iterdir())
    for file in files if given["output"] else ():
        write_atomic(given["output"] / file.name, file.read_bytes())
    if given["as_json"]:
        print_json(result.report)
        return int(not run.summary.passed_gate)
    summary = next(file for file in files if file.suffix == ".md").read_text(encoding="utf-8")
    echo(summary.split("\n\n")[1].strip())
    _print_run(run, list(paths), [], as_json=False)
    return int(not run.summary.passed_gate)


def _calibrate(paths: tuple[Path, ...], given: dict[str, Any]) -> int:
    """Score the judges of a pack on its labelled examples."""
    import asyncio

    from offbook.evals.pack_file import read_pack
    from offbook.evals.rubrics import (
        JudgeOptions,
        build_judges,
        calibrate,
        questions_of,
        render_calibration,
        settings_for,
    )

    if len(paths) != 1:
        raise UsageError("expected one pack", hint="offbook eval run PACK --calibrate")
    loaded = read_pack(paths[0])
    options = JudgeOptions(given["judge"], given["judge_model"], given["live"])
    rubrics = [r for r in loaded.pack.rubrics if r.judged and given["rubric"] in {"", r.id}]
    require_some(rubrics, "the pack has no such llm-judge rubric", where=paths[0])
    code = 0
    reports: dict[str, object] = {}
    for rubric in rubrics:
        settings = settings_for(rubric, loaded, options)
        built = build_judges(settings, loaded, options)
        hint = "--judge FILE, or --judge PROVIDER --live"
        require_some(built, "no judge is configured", hint=hint)
        least = settings.min_agreement if given["min_kappa"] is None else given["min_kappa"]
        for name, report in asyncio.run(calibrate(built, rubric, settings)).items():
            reports[name] = report
            gated = name in questions_of(rubric, settings)
            code |= int(gated and least is not None and report.kappa < least)
            if not given["as_json"]:
                echo("\n".join(render_calibration(name, report)))
    if given["as_json"]:
        print_json(reports)
    return code


RUNNERS = {
    "pack": _run_packs,
    "context": _run_single,
    "prompts": _run_single,
    "judge": _calibrate,
}
