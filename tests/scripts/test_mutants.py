"""`./dev mutants` finds the change that no test notices, and says so."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.forked import run_python

SHOP = """
def discount(total):
    if total >= 100:
        return total // 10
    return 0
"""
STRONG = """
from shop import discount

def test_discount():
    assert [discount(total) for total in (0, 99, 100, 220)] == [0, 0, 10, 22]
"""
WEAK = """
from shop import discount

def test_discount():
    assert discount(220) > 1
"""
CONFIG = """
[parts.shop]
sources = ["src/shop.py"]
tests = ["tests"]
"""
REVIEW = """
[[reviewed]]
file = "src/shop.py"
function = "discount"
statement = "if total >= 100:"
change = "{change}"
reason = "planted"
"""
BOUNDARY = "total >= 100 → total > 100"


def make_project(folder: Path, test: str, *, source: str = SHOP, config: str = CONFIG) -> Path:
    for name, text in {
        "src/shop.py": source,
        "tests/test_shop.py": test,
        "scripts/mutants.toml": config,
        "pytest.ini": "[pytest]\nmarkers =\n    slow\n    clients\n    external\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run_mutants(
    root: Path, project: Path, *options: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    ran = run_python(
        *(root / "scripts" / "mutants", *options),
        cwd=project,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        imports=["coverage"],
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def row(ran: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the row of the table by its headings."""
    heading, values = ran.stdout[ran.stdout.index("part ") :].splitlines()[:2]
    return dict(zip(heading.split(), values.split(), strict=True))


@pytest.mark.slow
def test_a_weak_test_lets_mutants_survive_and_the_command_fails(root: Path, tmp_path: Path):
    ran = run_mutants(root, make_project(tmp_path, WEAK), code=1)
    assert f"src/shop.py:3  discount\n    if total >= 100:\n      {BOUNDARY}" in ran.stdout
    assert "10% or more survived: shop" in ran.stdout
    assert int(row(ran)["survived"]) > 1


@pytest.mark.slow
def test_a_strong_test_kills_all_mutants_and_leaves_the_source_unchanged(
    root: Path, tmp_path: Path
):
    project = make_project(tmp_path, STRONG)
    ran = run_mutants(root, project)
    assert row(ran)["killed"] == row(ran)["run"] == row(ran)["mutants"] == "6"
    assert (project / "src" / "shop.py").read_text() == SHOP
    assert "without a mutant" in ran.stderr
    # The results are kept: nothing is run again.
    again = run_mutants(root, project)
    assert (again.stdout, again.stderr) == (ran.stdout, "")


@pytest.mark.slow
def test_a_reviewed_survivor_is_not_counted(root: Path, tmp_path: Path):
    almost = STRONG.replace("(0, 99, 100, 220)", "(0, 99, 220)").replace("0, 0, 10", "0, 0")
    review = CONFIG + REVIEW.format(change=BOUNDARY)
    assert row(run_mutants(root, make_project(tmp_path, almost), code=1))["left"] == "33.3%"
    # 100 → 101 is another survivor: both are one third of the six.
    second = review + REVIEW.format(change="100 → 101")
    ran = run_mutants(root, make_project(tmp_path, almost, config=second))
    assert (row(ran)["reviewed"], row(ran)["left"]) == ("2", "0.0%")


@pytest.mark.slow
def test_a_review_of_a_killed_mutant_fails(root: Path, tmp_path: Path):
    project = make_project(tmp_path, STRONG, config=CONFIG + REVIEW.format(change=BOUNDARY))
    ran = run_mutants(root, project, code=1)
    assert f"reviewed, but killed: src/shop.py | discount | if total >= 100: | {BOUNDARY}" in (
        ran.stdout
    )


def test_a_review_of_a_text_that_is_gone_fails(root: Path, tmp_path: Path):
    project = make_project(tmp_path, STRONG, config=CONFIG + REVIEW.format(change="gone"))
    ran = run_mutants(root, project, "--list", code=1)
    assert "reviewed, but no longer a mutant: src/shop.py | discount" in ran.stdout


@pytest.mark.slow
def test_a_mutant_that_cannot_be_imported_is_not_killed(root: Path, tmp_path: Path):
    source = "RATES = {'a': 1}\nRATE = RATES['a']\n"
    test = "def test_rate():\n    from shop import RATE\n    assert RATE == 1\n"
    broken = f"import shop\n{test}"
    ran = run_mutants(root, make_project(tmp_path, broken, source=source))
    assert row(ran)["broken"] == "2"


@pytest.mark.slow
def test_mutants_of_code_that_runs_at_import_are_killed(root: Path, tmp_path: Path):
    source = "RATES = {'a': 1}\n\ndef rate(extra=2):\n    return RATES['a'] + extra\n"
    test = "from shop import rate\nRATE = rate()\ndef test_rate():\n    assert RATE == 3\n"
    ran = run_mutants(root, make_project(tmp_path, test, source=source))
    assert int(row(ran)["killed"]) + int(row(ran)["broken"]) == int(row(ran)["mutants"])


@pytest.mark.slow
def test_a_mutant_of_a_decorated_function_is_killed(root: Path, tmp_path: Path):
    source = "from functools import cache\n\n@cache\ndef rate():\n    return 2\n"
    test = "from shop import rate\n\ndef test_rate():\n    assert rate() == 2\n"
    ran = run_mutants(root, make_project(tmp_path, test, source=source))
    assert (row(ran)["killed"], row(ran)["mutants"]) == ("1", "1")


@pytest.mark.slow
def test_tests_that_do_not_run_without_a_mutant_are_an_error(root: Path, tmp_path: Path):
    ran = run_mutants(root, make_project(tmp_path, "import nothing_of_this_name"), code=1)
    assert "the tests of shop do not run without a mutant" in ran.stderr


@pytest.mark.slow
def test_a_mutant_that_never_ends_is_a_timeout(root: Path, tmp_path: Path):
    source = "def count(n):\n    i = 0\n    while i < n:\n        i += 1\n    return i\n"
    test = "from shop import count\ndef test_count():\n    assert [count(0), count(3)] == [0, 3]\n"
    project = make_project(tmp_path, test, source=source, config=CONFIG + "seconds = 2\n")
    ran = run_mutants(root, project)
    assert row(ran)["timeout"] == "1"


@pytest.mark.slow
def test_a_test_that_fails_without_a_mutant_kills_none(root: Path, tmp_path: Path):
    fork = "import os\nOWN = os.getpid()\n" + WEAK.replace(
        "discount(220) > 1", "(discount(220), os.getpid()) == (22, OWN)"
    )
    ran = run_mutants(root, make_project(tmp_path, fork), code=1)
    assert "not used, as it fails without a mutant: tests/test_shop.py::test_discount" in ran.stderr
    assert row(ran)["killed"] == "0"
