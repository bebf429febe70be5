"""The agent of the imported suites: a fixed answer to each input."""

from typing import Any

ANSWERS: dict[str, Any] = {
    "Refund 7": "Order 7 is refunded.",
    "Refund 8": "  Order 8 is refunded!\n",
    "Refund 9": "I cannot do that.",
    "json": {"ok": True, "n": 7},
    "list": ["a", "b"],
    "number": "The total is 42",
    "choice": "Let me think.\nANSWER: B",
    "twice": "ANSWER: A\nANSWER: B",
    "lines": "first line\nsecond line 12\n",
}


def answer(text: str) -> Any:
    """Return the answer to an input."""
    return ANSWERS[text]
