"""OpenAI's own client, answered by the dialects without a socket."""

import openai

from tests.exchange.dialects.served import Say, Served


def connect(*script: Say) -> tuple[openai.OpenAI, Served]:
    """A client, and what answers it: these replies, one after the other."""
    served = Served(*script)
    client = openai.OpenAI(
        api_key="none",
        base_url="http://127.0.0.1/v1",
        http_client=served.http_client,
        max_retries=0,
    )
    return client, served
