"""Data sets and axes: many cases of one file, and their results by slice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, UsageError
from offbook.evals import (
    FinishedRun,
    RunOptions,
    compare_runs,
    query_results,
    read_pack,
    read_results,
    render_markdown,
    render_table,
    report_json,
    run_pack,
)
from tests.evals.conftest import RunPack

Write = Callable[[dict[str, Any]], Path]

AGENT = {
    "shop.py": (
        "import os\n\n"
        "def answer(value):\n"
        "    return f\"{os.environ.get('MODEL', '')} order {value} is refunded\"\n\n"
        "def echo(value):\n"
        "    return value\n"
    )
}
CSV = "order,kind,answer\n7,card,order 7\n8,cash,order 8\n007,cash,order 007\n"
PACK = """
[[datasets]]
path = "orders.csv"

[datasets.case]
subject = "shop.py:answer"
input = "{{order}}"
metadata = { kind = "{{kind}}" }
assertions = [{ kind = "output", contains = "{{answer}} is" }]
"""


def statuses(run: FinishedRun) -> dict[str, str]:
    return {case.id: case.status for case in run.cases}


ROWS = [{"id": "a", "value": 1, "more": {"deep": [1, 2]}}, {"id": "b", "value": "1", "more": None}]
FORMATS: dict[str, str] = {
    "rows.jsonl": "\n".join(map(json.dumps, ROWS)),
    "rows.json": json.dumps(ROWS),
    "rows.yaml": json.dumps(ROWS),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_cell_keeps_its_type(run_files: RunPack, name: str):
    case = {
        "id": "{{id}}",
        "subject": "shop.py:echo",
        "input": {"value": "{{value}}", "text": "={{value}}"},
        "assertions": [{"kind": "output", "expected": {"value": "{{value}}", "text": "=1"}}],
    }
    run = run_files({"datasets": [{"path": name, "case": case}]}, {**AGENT, name: FORMATS[name]})
    assert statuses(run) == {"a": "pass", "b": "pass"}
    loaded = read_pack(run.folder / "pack.json")
    assert [case.input["value"] for case in loaded.pack.cases] == [1, "1"]


LARGE = "x" * 200_000
# texts that end no line and no cell
UNUSUAL = {
    "a separator of lines in JSON": ("rows.jsonl", '{"text": "a\u2028b\x85c"}', "a\u2028b\x85c"),
    "a large cell of CSV": ("rows.csv", f"text\n{LARGE}\n", LARGE),
}


@pytest.mark.parametrize("name, text, expected", UNUSUAL.values(), ids=UNUSUAL)
def test_an_unusual_text_is_one_cell(write: Write, name: str, text: str, expected: str):
    case = {"subject": "shop.py:echo", "input": "{{text}}"}
    folder = write({"pack.json": {"datasets": [{"path": name, "case": case}]}, name: text})
    assert [case.input for case in read_pack(folder / "pack.json").pack.cases] == [expected]


def test_parquet_is_read_by_duckdb(run_files: RunPack, tmp_path: Path):
    duckdb: Any = pytest.importorskip("duckdb")
    duckdb.sql("select 7 as n, 'x' as t").write_parquet(str(tmp_path / "rows.parquet"))
    case = {
        "subject": "shop.py:echo",
        "input": ["{{n}}", "{{t}}"],
        "assertions": [{"kind": "output", "expected": [7, "x"]}],
    }
    run = run_files({"datasets": [{"path": "rows.parquet", "case": case}]}, AGENT)
    assert statuses(run) == {"rows-1": "pass"}


def test_each_row_of_a_csv_file_is_a_case_with_its_own_expectation(run_files: RunPack):
    run = run_files(PACK, {**AGENT, "orders.csv": CSV})
    assert statuses(run) == dict.fromkeys(["orders-1", "orders-2", "orders-3"], "pass")
    wrong = run_files(PACK, {**AGENT, "orders.csv": CSV.replace("order 8", "order 9")})
    assert statuses(wrong)["orders-2"] == "fail"


def test_a_cell_of_a_csv_file_can_be_parsed(run_files: RunPack):
    pack = PACK.replace('"{{order}}"', '"{{order | json}}"')
    files = {**AGENT, "orders.csv": CSV.replace("007", "9")}
    assert [c.input for c in read_pack(run_files(pack, files).folder / "pack.toml").pack.cases] == [
        *(7, 8, 9)
    ]


def test_a_playbook_is_a_template_as_well(run_files: RunPack):
    agent = (
        "import openai\n\n"
        "def agent(text):\n"
        "    message = {'role': 'user', 'content': text}\n"
        "    client = openai.OpenAI(api_key='x')\n"
        "    reply = client.chat.completions.create(model='m', messages=[message])\n"
        "    return reply.choices[0].message.content\n"
    )
    pack = """
[[datasets]]
path = "orders.csv"
[datasets.case]
subject = "agent.py:agent"
playbook = [{ when = "Refund {{order}}", do = [{ say = "{{answer}}" }] }]
assertions = [{ kind = "output", expected = "{{answer}}" }]
"""
    run = run_files(pack, {"agent.py": agent, "orders.csv": CSV})
    assert set(statuses(run).values()) == {"pass"}


AXES = (
    PACK.replace('contains = "{{answer}}', 'contains = "{{model}} {{answer}}')
    + """
env = { MODEL = "{{model}}" }

[axes]
model = ["small", "large"]
"""
)


def test_a_case_is_repeated_for_each_value_of_the_axes_that_it_names(run_files: RunPack):
    run = run_files(AXES, {**AGENT, "orders.csv": CSV}, jobs=2)
    assert set(statuses(run).values()) == {"pass"}
    assert [case.id for case in run.cases][:2] == ["orders-1/model=small", "orders-1/model=large"]
    assert len(run.cases) == 6
    (table,) = {item.by for item in run.summary.slices}
    assert table == "model"


def test_the_values_of_an_axis_may_have_names(run_files: RunPack):
    pack = """
[[cases]]
id = "c"
subject = "shop.py:echo"
input = "{{prompt}}"
assertions = [{ kind = "output", contains = "answer" }]

[[cases]]
id = "plain"
subject = "shop.py:echo"
input = "x"
assertions = [{ kind = "output", expected = "x" }]

[axes.prompt]
short = "answer"
long = "Please answer at length"
"""
    run = run_files(pack, AGENT)
    assert [*statuses(run)] == ["c/prompt=short", "c/prompt=long", "plain"]


WRONG: dict[str, tuple[str, dict[str, str], str, int]] = {
    "an unknown column": (
        PACK.replace("{{kind}}", "{{knd}}"),
        {"orders.csv": CSV},
        "no column or axis 'knd'",
        5,
    ),
    "no rows": (PACK, {"orders.csv": "order,kind,answer\n"}, "has no rows", 3),
    "an axis without use": (PACK + "\n[axes]\nmodel = [1]\n", {"orders.csv": CSV}, "no case", 12),
    "an axis without values": (
        PACK.replace("{{kind}}", "{{m}}") + "\n[axes]\nm = []\n",
        {"orders.csv": CSV},
        "has no values",
        12,
    ),
    "an axis that is a column": (
        PACK + '\n[axes]\nkind = ["x"]\n',
        {"orders.csv": CSV},
        "is an axis and a column",
        5,
    ),
    "a wrong case": (
        PACK.replace("shop.py:answer", 'shop.py:answer"\nplaybok = "x'),
        {"orders.csv": CSV},
        "playbok",
        7,
    ),
    "an id that is a number": (
        PACK.replace("{{kind}}", "{{m}}") + 'id = "{{order | json}}"\n[axes]\nm = ["a"]\n',
        {"orders.csv": CSV},
        "expected a text, got int",
        10,
    ),
    "metadata that is a text": (
        PACK.replace('{ kind = "{{kind}}" }', '"{{m}}"') + '[axes]\nm = ["a"]\n',
        {"orders.csv": CSV},
        "expected a table, got str",
        8,
    ),
    "a case that is a template": (
        'cases = ["{{m}}"]\n[axes]\nm = ["a"]\n',
        {},
        "expected a table, got str",
        1,
    ),
    "the same id twice": (
        PACK + 'id = "{{kind}}"\n',
        {"orders.csv": CSV},
        r"'cash' is defined twice in cases \(row 3 of orders.csv\)",
        10,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_the_line_of_the_template(run_files: RunPack, name: str):
    pack, files, message, line = WRONG[name]
    with pytest.raises(FormatError, match=message) as error:
        run_files(pack, {**AGENT, **files})
    assert error.value.line == line


BAD_ROWS: dict[str, tuple[str, str]] = {
    "short.csv": ("a,b\n1\n", "expected 2 cells, got 1"),
    "twice.csv": ("a,a\n1,2\n", "the column 'a' is there twice"),
    "broken.csv": ('a\n"x', "invalid CSV"),
    "object.json": ("{}", "expected a list of rows, got dict"),
    "texts.json": ('["x"]', "expected an object in row 1, got str"),
    "broken.jsonl": ("{", "JSON"),
    "rows.txt": ("", "unsupported file type '.txt'"),
    "missing.csv": ("", "no such file"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_cannot_be_read_are_an_error(run_files: RunPack, name: str):
    text, message = BAD_ROWS[name]
    files = {} if name.startswith("missing") else {name: text}
    with pytest.raises(FormatError, match=message):
        run_files({"datasets": [{"path": name, "case": {"subject": "a.py:b"}}]}, files)


# --- Slices


def run_slices(run_files: RunPack, extra: str = "", **options: Any) -> FinishedRun:
    data = CSV.replace("order 8", "order 9")  # one of the two cash cases fails
    return run_files(PACK + extra, {**AGENT, "orders.csv": data}, jobs=1, **options)


def test_a_result_has_the_metadata_of_its_case(run_files: RunPack):
    run = run_slices(run_files, output="out")
    assert {result.metadata["kind"] for result in read_results(run.folder)} == {"card", "cash"}
    assert report_json(run)["cases"][0]["metadata"] == {"kind": "card"}


def test_a_run_has_a_table_by_metadata(run_files: RunPack):
    run = run_slices(run_files, by=("kind",))
    found = {item.value: (item.passed, item.cases) for item in run.summary.slices}
    assert found == {"card": (1, 1), "cash": (1, 2)}
    assert any(line.startswith("cash  1/2     50% (9% to 91%)") for line in render_table(run))
    assert "| cash | 1/2 | 50% " in render_markdown(run)


@pytest.mark.parametrize(
    "where, ids",
    [
        ((("kind", "cash"),), ["orders-2", "orders-3"]),
        ((("kind", "card"),), ["orders-1"]),
    ],
)
def test_cases_are_filtered_by_metadata(
    run_files: RunPack, where: tuple[tuple[str, str], ...], ids: list[str]
):
    assert [*statuses(run_slices(run_files, where=where))] == ids


@pytest.mark.parametrize("options", [{"where": (("knd", "x"),)}, {"by": ("knd",)}])
def test_an_unknown_key_of_metadata_is_refused(run_files: RunPack, options: dict[str, Any]):
    with pytest.raises(UsageError, match="no case has the metadata 'knd'"):
        run_slices(run_files, **options)


def test_a_filter_without_cases_is_not_a_pass(run_files: RunPack):
    with pytest.raises(UsageError, match="no case is selected"):
        run_slices(run_files, where=(("kind", "gold"),))


GATE = 'severity = "informational"\n[[slices]]\nby = "kind"\nmin-pass-rate = {}\n'


@pytest.mark.parametrize("least, passed", [(0.5, True), (0.6, False)])
def test_a_slice_below_its_lowest_pass_rate_fails_the_run(
    run_files: RunPack, least: float, *, passed: bool
):
    run = run_slices(run_files, GATE.format(least))
    assert run.summary.passed_gate is passed
    expected = () if passed else ("slice kind=cash: pass rate 0.50 is below the minimum 0.6",)
    assert run.summary.below == expected


def test_a_limit_on_a_value_that_no_case_has_is_no_pass(run_files: RunPack):
    run = run_slices(run_files, GATE.format(0.1) + 'value = "gold"\n')
    assert run.summary.below == ("slice kind=gold: no data, no case has this value",)
    assert not run.summary.passed_gate


def test_a_limit_on_an_unknown_key_is_refused(run_files: RunPack):
    with pytest.raises(FormatError, match="no case has 'knd' in its metadata"):
        run_slices(run_files, GATE.format(0.1).replace("kind", "knd"))


def test_a_query_reads_the_directory_of_a_run_by_metadata(run_files: RunPack):
    pytest.importorskip("duckdb")
    run = run_slices(run_files, output="elsewhere")
    sql = "select metadata.kind, count(*) from results where status = 'pass' group by 1 order by 1"
    assert query_results(sql, [run.folder])[1] == [("card", 1), ("cash", 1)]


def test_two_runs_are_compared_by_slice(run_files: RunPack, tmp_path: Path):
    run_slices(run_files, output="before")
    (tmp_path / "orders.csv").write_text(CSV)
    after = run_pack([tmp_path / "pack.toml"], RunOptions(output="after"))
    comparison = compare_runs(tmp_path / "before", after.folder, ["kind"])
    found = {name: difference.mean for name, difference in comparison.slices.items()}
    assert found == {"kind=card": 0.0, "kind=cash": 0.5}
    assert comparison.needed is not None


def test_only_errors_run_again(run_files: RunPack, tmp_path: Path):
    agent = (
        "from pathlib import Path\n\n"
        "def count(name):\n"
        "    log = Path(name)\n"
        "    log.write_text(log.read_text() + 'x' if log.exists() else 'x')\n"
        "    if name == 'bad' and len(log.read_text()) == 1:\n"
        "        raise ValueError('once')\n"
        "    return 1\n"
    )
    cases = [
        {"id": name, "subject": "n.py:count", "input": name, "assertions": [expected]}
        for name, expected in (
            ("bad", {"kind": "output", "expected": 1}),
            ("good", {"kind": "output", "expected": 1}),
            ("wrong", {"kind": "output", "expected": 2}),
        )
    ]
    first = run_files({"cases": cases}, {"n.py": agent}, output="out")
    assert statuses(first) == {"bad": "error", "good": "pass", "wrong": "fail"}
    options = RunOptions(output="out", resume=True, retry_errors=True)
    second = run_pack([tmp_path / "pack.json"], options)
    assert statuses(second) == {"bad": "pass", "good": "pass", "wrong": "fail"}
    assert [(tmp_path / name).read_text() for name in ("bad", "good", "wrong")] == ["xx", "x", "x"]


def test_traces_of_cases_with_similar_names_are_apart(run_files: RunPack):
    limits = {"max_latency_ms": 1e6}
    names = ["a/b", "a_b", "x" * 90 + "1", "x" * 90 + "2"]
    cases = [
        {"id": name, "subject": "shop.py:echo", "input": 1, "thresholds": limits} for name in names
    ]
    run = run_files({"cases": cases}, AGENT, output="out")
    assert len({result.trace for result in read_results(run.folder)}) == 4


def test_chances_are_known_for_each_number_of_trials(run_files: RunPack):
    agent = (
        "from pathlib import Path\n\n"
        "def flip(value):\n"
        "    log = Path('log')\n"
        "    log.write_text(log.read_text() + 'x' if log.exists() else 'x')\n"
        "    return len(log.read_text()) % 2\n"
    )
    case = {"id": "c", "subject": "f.py:flip", "input": 1}
    case |= {"assertions": [{"kind": "output", "expected": 1}]}
    run = run_files({"cases": [case], "trials": 4}, {"f.py": agent}, jobs=1)
    assert run.cases[0].pass_at_k == pytest.approx((1 / 2, 5 / 6, 1, 1))
    assert run.cases[0].pass_hat_k == pytest.approx((1 / 2, 1 / 6, 0, 0))
    assert run.summary.pass_at_k == run.cases[0].pass_at_k
    assert any("pass@2 0.83" in line and "pass^2 0.17" in line for line in render_table(run))
