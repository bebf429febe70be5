"""Instructor: an object of a model, by a tool call, by JSON and as it grows."""

from typing import Any

import instructor
from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, print_result
from openai import OpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    """The weather in a city."""

    city: str
    degrees: int


mode = instructor.Mode[VARIANT.upper()]
client = instructor.from_openai(OpenAI(base_url=OPENAI, api_key="none"), mode=mode)
create = client.chat.completions.create_partial if STREAM else client.chat.completions.create
answer: Any = create(
    model=MODEL, messages=[{"role": "user", "content": PROMPT}], response_model=Weather
)
if STREAM:
    *_, answer = answer
print_result(f"{answer.city}: {answer.degrees}", "instructor", "openai")
