"""Which files are cases, which a filter selects, and which messages an `.error` file accepts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.conformance import find_cases, matches_error, matches_filter, read_suite_settings
from offbook.errors import UsageError

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "harn"
TABLES = DATA / "derived" / "conformance_runner"
Files = dict[str, str]


def write(folder: Path, files: Files) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def found(folder: Path, *run: str, name_filter: str = "") -> dict[str, str]:
    """Return the problem of each case by its name."""
    cases = find_cases(folder, read_suite_settings(folder, run), name_filter)
    return {case.name: case.problem for case in cases}


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"a.sh": "", "a.expected": ""}, {"a.sh": ""}),
        ({"a.sh": "", "a.error": ""}, {"a.sh": ""}),
        ({"b/c/a.sh": "", "b/c/a.expected": ""}, {"b/c/a.sh": ""}),
        (
            {"a.sh": "", "a.expected": "", "b.sh": ""},
            {"a.sh": "", "b.sh": "no expectation: write b.expected or b.error"},
        ),
        ({"a.expected": ""}, {"a.expected": "no source file for this expectation"}),
        ({"a.sh": "", "a.expected": "", "data.txt": ""}, {"a.sh": ""}),
        ({"a.sh": "", "a.expected": "", ".git/b.sh": ""}, {"a.sh": ""}),
        ({"a.sh": ""}, {}),
    ],
)
def test_the_sources_and_their_expectations_are_found(
    tmp_path: Path, files: Files, expected: dict[str, str]
):
    assert found(write(tmp_path, files), "sh {file}") == expected


def test_a_command_for_an_extension_makes_all_its_files_cases(tmp_path: Path):
    write(tmp_path, {"a.sh": "", "b.py": ""})
    assert found(tmp_path, ".sh=sh {file}") == {
        "a.sh": "no expectation: write a.expected or a.error"
    }


def test_an_expectation_of_a_source_without_a_command_fails(tmp_path: Path):
    write(tmp_path, {"a.sh": "", "a.expected": "", "b.js": "", "b.expected": ""})
    problems = found(tmp_path, ".sh=sh {file}")
    assert problems == {
        "a.sh": "",
        "b.expected": "no command for .js: --run '.js=COMMAND {file}'",
    }


def test_excluded_files_are_no_cases(tmp_path: Path):
    write(tmp_path, {"a.sh": "", "a.expected": "", "lib/b.sh": "", "lib/c.expected": ""})
    write(tmp_path, {"conformance.toml": 'exclude = ["lib/*"]\n[run]\nsh = "sh {file}"\n'})
    assert found(tmp_path) == {"a.sh": ""}


def test_the_command_of_each_extension_comes_from_the_settings_and_the_command_line(
    tmp_path: Path,
):
    write(tmp_path, {"conformance.toml": '[run]\nsh = "sh {file}"\njs = "node {file}"\n'})
    settings = read_suite_settings(tmp_path, [".js=bun run {file}"])
    assert settings.command("sh") == ["sh", "{file}"]
    assert settings.command("js") == ["bun", "run", "{file}"]
    assert settings.command("py") is None
    assert read_suite_settings(tmp_path, ["x {file}"]).command("js") == ["x", "{file}"]


@pytest.mark.parametrize(
    "files, run, message",
    [
        ({}, (), "no command to run the cases with\\s+--run 'python {file}'"),
        ({}, ("python",), "--run: the command 'python' does not name the file"),
        ({}, ("python '{file}",), "--run: invalid command"),
        ({"conformance.toml": "[run"}, (), r"conformance\.toml: "),
        ({"conformance.toml": "timout = 1"}, (), r"conformance\.toml: .*timout.*\s+did you mean"),
        ({"conformance.toml": "timeout = 0\n[run]\nx='{file}'"}, (), "expected a number > 0"),
        ({"conformance.toml": "[run]\nx = 'y'"}, (), r"run\.x: the command 'y' does not name"),
    ],
)
def test_unusable_settings_are_refused(
    tmp_path: Path, files: Files, run: tuple[str, ...], message: str
):
    with pytest.raises(UsageError, match=message):
        read_suite_settings(write(tmp_path, files), run)


@pytest.mark.parametrize(
    "files, message",
    [
        (
            {"s/a.sh": "", "s/a.expected": "", "s/a.error": ""},
            r"two expectations for one case: .*s/a\.expected and a\.error",
        ),
        ({"a.sh": "", "a.error": "ok\nre:("}, r"a\.error:2: invalid pattern '\('"),
        ({"a.sh": "# @xfail:\n", "a.expected": ""}, r"a\.sh: @xfail has no reason"),
    ],
)
def test_a_case_that_cannot_be_checked_is_refused_before_anything_runs(
    tmp_path: Path, files: Files, message: str
):
    with pytest.raises(UsageError, match=message):
        found(write(tmp_path, files), "sh {file}")


def test_an_invalid_filter_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"--filter: invalid pattern '\('"):
        found(tmp_path, "sh {file}", name_filter="re:(")


@pytest.mark.parametrize(
    "text, reason",
    [
        ("# @xfail: not yet\n", "not yet"),
        ("// @xfail: issue 7", "issue 7"),
        ("/* @xfail: issue 7 */", "issue 7"),
        ("<!-- @xfail: why -->", "why"),
        ("\n" * 49 + "# @xfail: late", "late"),
        ("\n" * 50 + "# @xfail: too late", ""),
        ("nothing", ""),
    ],
)
def test_a_known_failure_is_marked_in_the_first_lines(tmp_path: Path, text: str, reason: str):
    write(tmp_path, {"a.sh": text, "a.expected": ""})
    (case,) = find_cases(tmp_path, read_suite_settings(tmp_path, ["sh {file}"]))
    assert case.xfail == reason


FILTERS = [
    ("", "a.sh", True),
    ("b/", "b/a.sh", True),
    ("b", "a.sh", False),
    ("*.sh", "b/a.sh", True),
    ("*.txt", "a.sh", False),
    ("a?c", "x/abc.sh", True),
    ("a?c", "x/ac.sh", False),
    ("re:^b/", "b/a.sh", True),
    ("re:^a", "b/a.sh", False),
    ("re:a|b", "b.sh", True),
    ("x|a", "a.sh", True),
    ("x|y*z", "y12z.sh", True),
    ("x|y", "a.sh", False),
    ("A", "a.sh", False),
    ("a.sh", "aXsh", False),
    ("[demo]", "a[demo].sh", True),
    ("[demo]*", "d.sh", False),
    ("a*a*a*a*a*a*a*a*a*b", "a" * 200, False),
]


@pytest.mark.parametrize("name_filter, name, selected", FILTERS)
def test_a_filter_is_a_part_a_glob_an_expression_or_alternatives(
    name_filter: str, name: str, selected: object
):
    assert matches_filter(name_filter, name) is selected


LETTERS = st.text("ab.[]/ é", max_size=8)


@given(LETTERS, LETTERS, LETTERS)
def test_a_part_of_a_name_selects_it(before: str, part: str, after: str):
    assert matches_filter(part, before + part + after)


ERRORS = [
    ("boom", "it went boom today", True),
    ("boom", "fine", False),
    ("re:^bo+m$", "x\nboom", False),
    ("re:(?m)^bo+m$", "x\nboom", True),
    ("first\nsecond", "the second", True),
    ("first\nsecond", "the third", False),
    ("first\nre:^s", "second", True),
    ("first\n\nsecond", "third", False),  # an empty line is no alternative
    ("", "anything", True),
    ("boom\r\n", "boom", True),
]


@pytest.mark.parametrize("spec, actual, matches", ERRORS)
def test_an_error_is_a_text_an_expression_or_alternatives(spec: str, actual: str, matches: object):
    assert matches_error(spec, actual) is matches


def read_table(name: str) -> list[Any]:
    path = TABLES / name
    return json.loads(path.read_text())["cases"] if path.exists() else []


@pytest.mark.external
@pytest.mark.parametrize("row", read_table("error_spec_cases.json"), ids=str)
def test_the_table_of_error_specs_of_harn_holds(row: dict[str, Any]):
    assert matches_error(row["spec"], row["actual"]) is row["match"]


@pytest.mark.external
@pytest.mark.parametrize("row", read_table("filter_cases.json"), ids=str)
def test_the_table_of_filters_of_harn_holds(row: list[Any]):
    name_filter, name, selected = row
    assert matches_filter(name_filter, name) is selected


@pytest.mark.external
def test_the_error_specs_of_harn_are_read(tmp_path: Path):
    files = sorted((DATA / "conformance").rglob("*.error"))
    for number, path in enumerate(files):
        write(tmp_path, {f"c{number}.sh": "", f"c{number}.error": path.read_text()})
    assert files
    assert set(found(tmp_path, "sh {file}").values()) == {""}
