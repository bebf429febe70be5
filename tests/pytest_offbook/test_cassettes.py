"""The cassette of a test is recorded on request and replayed otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from offbook.sources.cassette import load_cassette
from offbook.sources.server import Server
from tests.sources.cassette.conversations import Counting

pytest_plugins = ["pytester"]

DISABLED_PLUGINS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
RunTests = Callable[..., pytest.RunResult]
SETTINGS = "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
RECORD = "--offbook-record"
FIX = "*Fix, if the change is intended: pytest --offbook-record *.py::test_*"
TEST = """
def test_it(offbook):
    rehearsal = offbook.session(source=offbook.cassette({name}))
    assert rehearsal.run("Hello").output == "answer {first}"
    assert rehearsal.run("{second}").output == "answer {then}"
"""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    """A server in place of the real model."""
    counting = Counting()
    with Server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.mount(counting, run="").openai)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-" + "abcdEFGH1234" * 3)
        yield counting


@pytest.fixture
def run_test(pytester: pytest.Pytester, model: Counting) -> RunTests:
    def run(
        *options: str, name: str = "", first: int = 1, second: str = "Go on", then: int = 2
    ) -> pytest.RunResult:
        code = TEST.format(name=name and repr(name), first=first, second=second, then=then)
        pytester.makeini(SETTINGS)
        pytester.makepyfile(test_it=code)
        return pytester.runpytest_inprocess(*DISABLED_PLUGINS, *options)

    return run


@pytest.fixture
def cassette(pytester: pytest.Pytester) -> Path:
    """The path of the cassette of the test."""
    return pytester.path / "cassettes" / "test_it-test_it.yaml"


def test_nothing_is_recorded_without_the_option(
    run_test: RunTests, cassette: Path, model: Counting
):
    result = run_test()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no cassette yet*", "*pytest --offbook-record*"])
    assert not cassette.parent.exists()
    assert model.asked == 0


def test_a_recorded_cassette_is_replayed_without_the_model(
    run_test: RunTests, cassette: Path, model: Counting, monkeypatch: pytest.MonkeyPatch
):
    run_test(RECORD).assert_outcomes(passed=1)
    assert (len(load_cassette(cassette)), model.asked) == (2, 2)
    written = cassette.read_bytes()
    assert b"abcdEFGH1234" not in written
    monkeypatch.delenv("OPENAI_BASE_URL")
    for _ in range(2):
        run_test().assert_outcomes(passed=1)
    assert (cassette.read_bytes(), model.asked) == (written, 2)


def test_a_changed_prompt_fails_with_the_difference(run_test: RunTests):
    run_test(RECORD)
    result = run_test(second="Go off")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*Replay mismatch at interaction 2*", "*- Go on*", "*+ Go off*", FIX]
    )


def test_an_unused_interaction_fails_the_test(run_test: RunTests, cassette: Path):
    run_test(RECORD)
    text = cassette.read_text().replace("metadata:", "").partition("total_tokens")[0]
    extended = text.rstrip() + (
        "\n\n  - id: 3\n    request:\n      prompt_hash: sha256:...\n    response:\n"
        "      output: more\n"
    )
    cassette.write_text(extended)
    result = run_test()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 of 3 interactions unused*"])


def test_a_new_recording_replaces_the_old_one_if_the_test_passes(
    run_test: RunTests, cassette: Path
):
    run_test(RECORD)
    before = cassette.read_bytes()
    run_test(RECORD, first=99).assert_outcomes(failed=1)
    assert cassette.read_bytes() == before
    run_test(RECORD, first=4, then=5).assert_outcomes(passed=1)
    assert [item.response.output for item in load_cassette(cassette)] == ["answer 4", "answer 5"]
    assert sorted(path.name for path in cassette.parent.iterdir()) == [cassette.name]


def test_the_first_recording_of_a_failing_test_is_marked_as_interrupted(
    run_test: RunTests, cassette: Path
):
    run_test(RECORD, first=99).assert_outcomes(failed=1)
    assert load_cassette(cassette).header.metadata["interrupted"] is True
    assert len(load_cassette(cassette)) == 1


def test_a_named_cassette_must_be_inside_the_cassette_folder(run_test: RunTests, cassette: Path):
    run_test(RECORD, name="shop/refund").assert_outcomes(passed=1)
    assert len(load_cassette(cassette.parent / "shop" / "refund.yaml")) == 2
    result = run_test(RECORD, name="../refund")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*is outside of its folder*"])


def test_recording_without_a_request_fails_the_test(pytester: pytest.Pytester, model: Counting):
    pytester.makeini(SETTINGS)
    pytester.makepyfile("def test_it(offbook):\n    offbook.cassette()\n")
    result = pytester.runpytest_inprocess(*DISABLED_PLUGINS, RECORD)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no request was made*"])


def test_two_tests_cannot_record_the_same_cassette(pytester: pytest.Pytester, model: Counting):
    code = "def test_{}(offbook):\n    offbook.session(source=offbook.cassette('x')).run('Hi')\n"
    pytester.makeini(SETTINGS)
    pytester.makepyfile(code.format("one") + code.format("two"))
    result = pytester.runpytest_inprocess(*DISABLED_PLUGINS, RECORD)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*another test has recorded this cassette already*"])
    assert model.asked == 1


def test_new_requests_are_added_to_the_cassette_of_a_test(
    run_test: RunTests, pytester: pytest.Pytester, cassette: Path, model: Counting
):
    run_test(RECORD).assert_outcomes(passed=1)
    code = TEST.format(name="", first=1, second="Go on", then=2)
    pytester.makepyfile(test_it=f'{code}    assert rehearsal.run("More").output == "answer 3"\n')
    for options in (["--offbook-record-new"], []):
        result = pytester.runpytest_inprocess(*DISABLED_PLUGINS, *options)
        result.assert_outcomes(passed=1)
    assert (model.asked, len(load_cassette(cassette))) == (3, 3)


def test_interactions_that_an_extending_test_does_not_use_fail_it(run_test: RunTests):
    run_test(RECORD).assert_outcomes(passed=1)
    result = run_test("--offbook-record-new", second="Stop", then=3)
    result.stdout.fnmatch_lines(
        ["*1 recorded interactions were not used*", "*cassette edit * --trim 2"]
    )
