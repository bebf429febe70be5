"""DSPy: ReAct, which calls tools in text, and ReActV2, which calls them natively."""

import asyncio
from typing import Any

import dspy
from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result

# DSPy calls natively only where litellm knows that the model can.
model = "gpt-4o" if VARIANT == "native" else MODEL
lm = dspy.LM(f"openai/{model}", api_base=OPENAI, api_key="none", cache=False)
dspy.configure(lm=lm, adapter=dspy.ChatAdapter(use_native_function_calling=VARIANT == "native"))
kind: Any = dspy.ReActV2 if VARIANT == "native" else dspy.ReAct
agent = kind("question -> answer", tools=[get_weather])


async def stream() -> str:
    """Return the answer of a streamed program; its last item is the prediction."""
    *_, last = [item async for item in dspy.streamify(agent)(question=PROMPT)]
    return last.answer


answer = asyncio.run(stream()) if STREAM else agent(question=PROMPT).answer
print_result(answer, "dspy", "litellm")
