"""A RAG service in FastAPI: it finds pages, lets a model answer from them, and checks its sources.

An answer without a source, or with a page that the model has not seen, never reaches a user.
"""

import re

from fastapi import FastAPI, HTTPException
from openai import AsyncOpenAI, OpenAIError
from pydantic import BaseModel

PAGES = {
    "returns": "Goods can be returned within 30 days. The customer pays the postage.",
    "warranty": "Electric goods have a warranty of two years.",
    "delivery": "Delivery takes three days. Lamps are delivered in a separate box.",
}
INSTRUCTIONS = "Answer from the pages only. End each sentence with its page, such as [returns]."

app = FastAPI()


class Question(BaseModel):
    """What a user asks."""

    text: str


class Answer(BaseModel):
    """The answer, and the pages that it is taken from."""

    text: str
    sources: list[str]


def find_pages(question: str, limit: int = 2) -> dict[str, str]:
    """Return the pages that have most words of the question."""
    words = {word for word in re.findall(r"\w+", question.lower()) if len(word) > 3}
    counts = {
        name: len(words & {name, *re.findall(r"\w+", text.lower())}) for name, text in PAGES.items()
    }
    best = sorted((name for name in PAGES if counts[name]), key=lambda name: -counts[name])
    return {name: PAGES[name] for name in best[:limit]}


async def ask_model(question: str, pages: dict[str, str]) -> str:
    """Return the answer of the model to a question about pages."""
    context = "\n".join(f"[{name}] {text}" for name, text in pages.items())
    async with AsyncOpenAI() as model:
        reply = await model.chat.completions.create(
            model="gpt-4.1-mini",
            messages=[
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": f"{question}\n\n{context}"},
            ],
        )
    return reply.choices[0].message.content or ""


@app.post("/ask")
async def ask(question: Question) -> Answer:
    """Answer a question."""
    pages = find_pages(question.text)
    if not pages:
        return Answer(text="The pages do not say that.", sources=[])
    try:
        text = await ask_model(question.text, pages)
    except OpenAIError as error:
        raise HTTPException(503, "the model is not available") from error
    sources = sorted(set(re.findall(r"\[(\w+)\]", text)))
    if not sources or not pages.keys() >= set(sources):
        raise HTTPException(502, "the model gave no source that it was shown")
    return Answer(text=text, sources=sources)
