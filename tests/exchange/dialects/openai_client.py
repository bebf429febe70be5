"""OpenAI's client with a fake provider."""

import openai

from tests.exchange.dialects.fake_provider import FakeProvider, ScriptedReply


def connect(*script: ScriptedReply) -> tuple[openai.OpenAI, FakeProvider]:
    """Return a client, and the provider that sends it these replies."""
    provider = FakeProvider(*script)
    client = openai.OpenAI(
        api_key="none",
        base_url="http://127.0.0.1/v1",
        http_client=provider.http_client,
        max_retries=0,
    )
    return client, provider
