"""`pytest --offbook-github`: annotations and a step summary, in GitHub Actions only."""

from functools import partial
from pathlib import Path

import pytest

from tests.forked import run_pytest

pytest_plugins = ["pytester"]
OPTIONS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"

TESTS = """
import pytest
from offbook import call, say, when

def test_passes():
    pass

def test_fails(offbook):
    rehearsal = offbook.session()
    rehearsal.run(
        when("Go", [call("nope"), say("Done.")]),
    )

def test_hostile():
    assert "<script>x</script>\\n::error::injected | `" == ""

@pytest.fixture
def broken():
    raise ValueError("no setup")

def test_error(broken):
    pass

@pytest.mark.skip(reason="not now")
def test_skipped():
    pass
"""


@pytest.fixture
def summary(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the step summary, in the environment of GitHub Actions."""
    pytester.makeini(INI)
    pytester.makepyfile(test_shop=TESTS)
    path = pytester.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def annotations(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("::")]


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "xdist"])
def test_failed_tests_are_annotated_at_their_lines(
    pytester: pytest.Pytester, summary: Path, workers: tuple[str, ...]
):
    run = partial(run_pytest, pytester) if workers else pytester.runpytest_inprocess
    result = run("--offbook-github", *OPTIONS, *workers)
    failed, hostile, error = annotations(result)
    assert failed.startswith(
        "::error file=test_shop.py,line=9,title=test_shop.py%3A%3Atest_fails::"
    )
    assert "the agent has no tool 'nope'" in failed
    assert hostile.startswith("::error file=test_shop.py,line=14,")
    assert error.startswith("::error file=test_shop.py,line=18,")
    text = summary.read_text()
    assert text.startswith("## Tests: 3 failed, 1 passed, 1 skipped\n")
    assert "<script>" not in text.partition("### ")[0]
    assert "not now" in text


@pytest.mark.parametrize("variable, option", [("", "--offbook-github"), ("true", "-q")])
def test_without_the_flag_or_elsewhere_nothing_is_written(
    pytester: pytest.Pytester,
    summary: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    option: str,
):
    monkeypatch.setenv("GITHUB_ACTIONS", variable)
    result = pytester.runpytest_inprocess(option, *OPTIONS)
    assert annotations(result) == []
    assert not summary.exists()


def test_a_file_that_cannot_be_collected_is_annotated(pytester: pytest.Pytester, summary: Path):
    pytester.makepyfile(test_shop="def broken(:\n")
    result = pytester.runpytest_inprocess("--offbook-github", *OPTIONS)
    [line] = annotations(result)
    assert line.startswith("::error file=test_shop.py,line=1,title=test_shop.py::")
    assert "SyntaxError" in line
    assert summary.read_text().startswith("## Tests: 1 failed\n")
