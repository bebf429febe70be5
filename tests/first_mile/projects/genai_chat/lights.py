"""Automatic function calling of google-genai."""

from google import genai
from google.genai import types


def get_room_temperature(room: str) -> dict:
    """Get the temperature of a room.

    Args:
        room: The room, for example kitchen.
    """
    return {"room": room, "celsius": 21}


def ask(prompt: str) -> str:
    client = genai.Client()
    config = types.GenerateContentConfig(
        tools=[get_room_temperature], system_instruction="You control a house."
    )
    response = client.models.generate_content(
        model="gemini-2.5-flash", contents=prompt, config=config
    )
    return response.text
