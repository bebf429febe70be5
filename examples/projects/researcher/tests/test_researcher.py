"""The researcher reads before it answers, and survives a model that errs."""

import pytest
from researcher import LIBRARY, make_researcher

from offbook import call, drive, fail, say, when

ANSWER = "2 to 3 kW [library/kettles]"


@pytest.fixture
def researcher(offbook):
    return offbook.drive(make_researcher())


def test_a_page_is_found_and_read(researcher):
    run = researcher.run(
        when("How much power does a kettle use?", [
            call("search", {"words": "kettle power"}),
            call("read_page", {"name": "kettles"}),
            say(ANSWER),
        ]),
    )  # fmt: skip
    assert run.tools == ["search", "read_page"]
    assert run.results("search")[0].text == "kettles"
    assert "2 to 3 kW" in run.results("read_page")[0].text


def test_two_pages_are_read_in_one_step(researcher):
    run = researcher.run(
        when("Compare a kettle and a lamp", [
            [call("read_page", {"name": "kettles"}), call("read_page", {"name": "lamps"})],
            say("A kettle uses 300 times as much."),
        ]),
    )  # fmt: skip
    texts = [result.text for result in run.results("read_page")]
    assert sorted(text.split("[")[1] for text in texts) == ["library/kettles]", "library/lamps]"]


def test_a_page_that_does_not_exist_is_said_to_the_model(researcher):
    run = researcher.run(
        when("What is in the attic?", [
            call("read_page", {"name": "attic"}),
            say("The library has no such page."),
        ]),
    )  # fmt: skip
    assert run.results("read_page")[0].text == "there is no page 'attic'"


def test_a_busy_provider_is_asked_again(researcher):
    run = researcher.run(
        when("How much power does a kettle use?", [
            fail("overloaded", status=503, retry_after=0),
            call("read_page", {"name": "kettles"}),
            say(ANSWER),
        ]),
    )  # fmt: skip
    assert run.tools == ["read_page"]


def test_the_recorded_conversation_still_works(offbook):
    researcher = offbook.drive(make_researcher(), source=offbook.cassette("kettle"))
    run = researcher.run("How much power does a kettle use?")
    assert run.tools == ["search", "read_page"]
    assert "2 to 3 kW" in run.results("read_page")[0].text


def new_researcher():
    return drive(make_researcher())


def reads_the_library_only(run, state):
    pages = (*LIBRARY.values(), "there is no page", "Error", "Tool call")
    assert all(result.text.startswith(pages) for result in run.results("read_page"))


def test_no_model_makes_it_read_another_page(offbook):
    offbook.explore(new_researcher, "Read about kettles", reads_the_library_only, runs=40)
