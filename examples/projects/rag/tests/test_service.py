"""The service answers with the pages that it was shown, and with nothing else."""

import asyncio

import httpx
import pytest
from service import app

from offbook import drive, fail, say, when


async def ask(question):
    """Ask the service as a client does; the output of a run is its response."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://rag.test") as client:
        response = await client.post("/ask", json={"text": question})
    return {"status": response.status_code, **response.json()}


@pytest.fixture
def service(offbook):
    return offbook.drive(ask)


def test_an_answer_has_its_source(service):
    run = service.run(
        when("Can goods be returned?", [say("Yes, within 30 days [returns].")]),
    )
    assert run.output["sources"] == ["returns"]
    assert "[returns] Goods can be returned within 30 days" in run.requests[0].prompt


def test_a_question_outside_of_the_pages_asks_no_model():
    answer = asyncio.run(ask("What is the weather?"))
    assert answer == {"status": 200, "text": "The pages do not say that.", "sources": []}


@pytest.mark.parametrize("answer", ["Yes, always.", "Yes, for ten years [secrets].", ""])
def test_an_answer_without_a_shown_source_is_refused(service, answer):
    run = service.run(when("Can goods be returned?", [say(answer)]))
    assert run.output["status"] == 502


def test_a_provider_that_is_down_is_reported(service):
    run = service.run(
        when("Can goods be returned?", [fail("overloaded", status=400)]),
    )
    assert run.output == {"status": 503, "detail": "the model is not available"}


def test_the_recorded_answer_still_works(offbook):
    run = offbook.drive(ask, source=offbook.cassette("returns")).run("Can goods be returned?")
    assert run.output["sources"] == ["returns"]


def answers_or_says_why(run, state):
    answer = run.output
    assert answer["status"] in (200, 502, 503), answer
    assert {"returns", "warranty"}.issuperset(answer.get("sources", []))


def test_no_model_breaks_the_service(offbook):
    offbook.explore(lambda: drive(ask), "Can goods be returned?", answers_or_says_why, runs=40)
