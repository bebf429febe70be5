"""OpenAI's Responses API."""

from offbook.exchange.dialects.dialect import API_KEY, Provider

PROVIDER = Provider(
    name="openai-responses",
    dialect="offbook.exchange.dialects.responses.responses_dialect:Responses",
    url="https://api.openai.com/v1",
    url_variables=("OPENAI_BASE_URL",),
    key_variables=("OPENAI_API_KEY",),
    client_env={"CODEX_API_KEY": API_KEY},
    # Codex does not read the base URL from the environment.
    client_arguments={
        "codex": (
            *("-c", 'openai_base_url="{url}/v1"', "-c", "analytics.enabled=false"),
            *("--disable", "plugins"),
        ),
    },
    opencode={"openai": "{url}/v1"},
    otel_name="openai",
    sampling={"temperature": "temperature"},
)
