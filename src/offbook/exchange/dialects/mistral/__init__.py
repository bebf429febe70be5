"""Mistral's chat completions, which differ from OpenAI's."""

from offbook.exchange.dialects.dialect import HostClient, Provider

PROVIDER = Provider(
    name="mistral",
    dialect="offbook.exchange.dialects.mistral.mistral_dialect:Mistral",
    url="https://api.mistral.ai/v1",
    url_variables=("MISTRAL_API_BASE",),
    key_variables=("MISTRAL_API_KEY",),
    hosts=(
        "api.mistral.ai",
        "api.eu.mistral.ai",
        "api.us.mistral.ai",
        "codestral.mistral.ai",
    ),
    # The names of litellm 1.108; mistralai 3.7 has no variable for its URL.
    host_clients={
        "api.mistral.ai": HostClient("MISTRAL_API_KEY", MISTRAL_API_BASE="/v1"),
        "codestral.mistral.ai": HostClient("CODESTRAL_API_KEY", CODESTRAL_API_BASE="/v1"),
    },
    call_id=("", 9),
    otel_name="mistral_ai",
    sampling={"temperature": "temperature", "seed": "random_seed"},
    sdks={"mistralai": "Mistral"},
)
