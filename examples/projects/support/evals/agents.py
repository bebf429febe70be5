"""The agent as the evals run it: with a shop of its own for each case."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OPENAI_API_KEY", "none")  # never sent: the model is scripted

from support import Shop, make_agent


async def answer(prompt: str) -> str:
    """Answer a customer."""
    return (await make_agent().run(prompt, deps=Shop())).output
