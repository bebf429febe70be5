"""An empty text that a schema names, such as a default, among the values of a search."""

from __future__ import annotations

from random import Random

from offbook.exchange import History, Request, Tool
from offbook.explore import ArgumentValues, Draw
from offbook.explore.argument_values import learn_request

ANSWER = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2},
        "explanation": {"type": "string", "default": ""},
    },
    "required": ["query"],
}


def test_an_empty_default_is_no_value_for_a_text_with_a_least_length():
    known = learn_request(Request(History(()), tools=(Tool("answer", "Answer.", ANSWER),)))
    assert "" in known.texts
    values = ArgumentValues({}, "Show the errors")
    draws = (Draw(Random(seed), [], known) for seed in range(300))  # noqa: S311 - not for secrets
    texts = [values.arguments(ANSWER, draw, "answer")["query"] for draw in draws]
    assert all(len(text) >= 2 for text in texts)
