"""Cohere's API, version 2; its copy of OpenAI's format is the dialect `openai-chat`."""

from offbook.exchange.dialects.dialect import HostClient, Provider

PROVIDER = Provider(
    name="cohere",
    dialect="offbook.exchange.dialects.cohere.cohere_dialect:Cohere",
    url="https://api.cohere.com",
    url_variables=("CO_API_URL",),
    key_variables=("CO_API_KEY", "COHERE_API_KEY"),
    hosts=("api.cohere.com", "api.cohere.ai"),
    # The names of cohere 7.3, and of litellm 1.108.
    host_clients={
        "api.cohere.com": HostClient(
            "CO_API_KEY", "COHERE_API_KEY", CO_API_URL="", COHERE_API_BASE="/compatibility/v1"
        )
    },
    otel_name="cohere",
    sampling={"temperature": "temperature", "seed": "seed"},
    sdks={"cohere": "Cohere"},
    unscripted={"logprobs": (False,)},
)
