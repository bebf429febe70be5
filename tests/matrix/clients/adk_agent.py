"""Google's Agent Development Kit."""

import asyncio

from google.adk.agents import Agent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types
from harness import GOOGLE, MODEL, PROMPT, STREAM, get_weather, print_result

agent = Agent(name="weather", model=Gemini(model=MODEL, base_url=GOOGLE), tools=[get_weather])


async def main() -> str:
    runner = InMemoryRunner(agent, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
    mode = StreamingMode.SSE if STREAM else StreamingMode.NONE
    text = ""
    async for event in runner.run_async(
        user_id="u",
        session_id=session.id,
        new_message=message,
        run_config=RunConfig(streaming_mode=mode),
    ):
        if event.is_final_response() and event.content and event.content.parts:
            text = "".join(part.text or "" for part in event.content.parts)
    return text


print_result(asyncio.run(main()), "google-adk", "google-genai")
