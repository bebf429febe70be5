"""The service as the evals ask it."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OPENAI_API_KEY", "none")  # never sent: the model is scripted

from service import Question, ask


async def answer(prompt: str) -> str:
    """Answer a question."""
    return (await ask(Question(text=prompt))).text
