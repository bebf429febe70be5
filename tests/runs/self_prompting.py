"""Programs with loops of their own: `python self_prompting.py NAME [PROMPT]` runs one."""

from __future__ import annotations

import json
import sys
from typing import Any

if __name__ == "__main__":
    import plain_openai as openai  # pyright: ignore[reportMissingImports] - next to this script
else:
    import openai


def ask(text: str, history: list[Any] | None = None, system: str = "") -> str:
    """Send a prompt after the history, which receives the prompt and the answer."""
    history = [] if history is None else history
    history.append({"role": "user", "content": text})
    first: list[Any] = [{"role": "system", "content": system}] if system else []
    reply = openai.OpenAI().chat.completions.create(model="m", messages=[*first, *history])
    answer = reply.choices[0].message.content or ""
    history.append({"role": "assistant", "content": answer})
    return answer


def react(prompt: str) -> str:
    """Call tools by text, until the model gives its final answer."""
    history: list[Any] = []
    answer = ask(prompt, history)
    while not answer.startswith("Final:"):
        answer = ask(f"Observation: the result of {answer}", history)
    return answer


def retry_json(prompt: str) -> object:
    """Ask the same again, in a new conversation, until the answer is JSON."""
    while True:
        try:
            return json.loads(ask(prompt))
        except ValueError:
            continue


def round_robin(prompt: str) -> list[str]:
    """Let two writers answer, with the same prompt and their own system prompts."""
    return [ask(prompt, system=f"You are writer {name}.") for name in "ABA"]


def ralph(prompt: str) -> list[str]:
    """Prompt itself twice after the first prompt."""
    history: list[Any] = []
    return [ask(text, history) for text in (prompt, "Iteration 2: go on", "Iteration 3: go on")]


def pipeline() -> str:
    """Write, review and name a draft, with prompts of its own."""
    draft = ask("Write a draft about tea")
    review = ask(f"Review this draft:\n{draft}")
    return ask(f"Find a title for:\n{draft}\n{review}")


def guarded() -> str:
    """Ask a guardrail, then the assistant, each with its system prompt."""
    verdict = ask("Is this allowed?", system="You are a guardrail.")
    return verdict if verdict == "no" else ask("Answer it.", system="You are an assistant.")


def planned(prompt: str) -> str:
    """Plan and carry out the plan with the same system prompt."""
    plan = ask(f"Plan: {prompt}", system="You are an engineer.")
    return ask(f"Carry out {plan!r} for: {prompt}", system="You are an engineer.")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
