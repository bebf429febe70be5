"""An agent that streams one reply with the SDK of OpenAI and retries at once."""


def streaming_agent(prompt: str) -> str:
    """Return its source. An error of the provider ends it, unless its argument is `--quiet`."""
    return f"""
import sys, openai
openai._base_client.INITIAL_RETRY_DELAY = openai._base_client.MAX_RETRY_DELAY = 0.001
text = ""
with openai.OpenAI() as client:
    try:
        for chunk in client.chat.completions.create(
            model="m", messages=[{{"role": "user", "content": "{prompt}"}}], stream=True
        ):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    except openai.OpenAIError as error:
        if "--quiet" not in sys.argv:
            sys.exit(repr(error))
print(text)
"""
