"""Agents of CrewAI and LlamaIndex, and calls of Mirascope and Instructor, are driven."""

import os

os.environ.setdefault("OPENAI_API_KEY", "none")

from typing import Any

import instructor
import openai
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI
from mirascope import llm
from pydantic import BaseModel

from offbook import call, drive, fail, role, say, when
from offbook.errors import ScriptExhausted, UsageError


def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}: one lamp"


FOUND = when("Find order 7", [call("find_order", {"number": 7}), say("One lamp.")])
clerk = Agent(
    role="Clerk",
    goal="Help.",
    backstory="You work in a shop.",
    tools=[tool(find_order)],
    llm=LLM(model="openai/gpt-4o", api_key="none"),
    max_retry_limit=0,
)
task = Task(description="{prompt}", expected_output="One sentence.", agent=clerk)
crew = Crew(agents=[clerk], tasks=[task])
assistant = FunctionAgent(tools=[find_order], llm=OpenAI(model="gpt-4o", api_key="none"))


@llm.call("openai/gpt-4o:completions", tools=[llm.tool(find_order)])
def ask(prompt: str) -> str:
    return prompt


def answer_with_tools(prompt: str) -> str:
    response: Any = ask(prompt)
    while response.tool_calls:
        response = response.resume(response.execute_tools())
    return response.text()


# The hints of Offbook are lines that work.
for agent, line in (
    (crew, "drive(lambda p: crew.kickoff({'prompt': p}))"),
    (assistant, "drive(lambda p: agent.run(p))"),
):
    suggested = ""
    try:
        drive(agent)
    except UsageError as error:
        suggested = error.hint
    assert suggested == f"write {line}", suggested

for function in (
    lambda p: crew.kickoff({"prompt": p}).raw,
    assistant.run,
    lambda p: assistant.run(user_msg=p),  # a plain function that needs a running loop
    answer_with_tools,
):
    with drive(function) as rehearsal:
        run = rehearsal.run(FOUND)
        assert run.results("find_order")[0].text == "order 7: one lamp"
        assert str(run.output) == "One lamp."
        assert not rehearsal.events.named("isolation.refused")
    error = ""
    try:
        with drive(function) as rehearsal:
            rehearsal.run(when("Try", [fail("never", status=400)]))
    except Exception as raised:  # noqa: BLE001 - of its framework
        error = str(raised)
    assert "never" in error


class Order(BaseModel):
    """An order."""

    product: str


def read_order(prompt: str) -> Order:
    client: Any = instructor.from_openai(openai.OpenAI(api_key="none", max_retries=0))
    messages = [{"role": "user", "content": prompt}]
    return client.create(model="gpt-4o", messages=messages, response_model=Order)


with drive(read_order) as rehearsal:
    rehearsal.run(when("A lamp", [call("Order", {"product": "lamp"}, unanswered=True)]))
    assert rehearsal.subject.result.product == "lamp"
error = ""
try:
    with drive(read_order) as rehearsal:
        rehearsal.run(when("Try", [fail("never", status=400)]))
except Exception as raised:  # noqa: BLE001 - of Instructor
    error = str(raised)
assert "never" in error

# A request for structured output follows the answer; the message has the role to paste.
structured = FunctionAgent(
    tools=[find_order], llm=OpenAI(model="gpt-4o", api_key="none"), output_cls=Order
)
message = ""
try:
    with drive(structured.run) as rehearsal:
        rehearsal.run(FOUND)
except ScriptExhausted as error:
    message = str(error)
pasted = message.partition("fix: add ")[2]
assert pasted.startswith("role("), message
pasted = (
    pasted.replace("…", '{"product": "lamp"}').replace('say("{', "say('{").replace('}")', "}')")
)
with drive(structured.run) as rehearsal:
    run = rehearsal.run(eval(pasted, {"role": role, "say": say}), FOUND)  # noqa: S307
    assert run.output.structured_response == {"product": "lamp"}
print("driven")
