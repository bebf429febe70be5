"""The environment variables and arguments that point the clients of every provider at one URL.

They also stop clients from contacting other hosts. Every guarded test sets `QUIET_ENV`, so this
module imports nothing.
"""

from __future__ import annotations

API_KEY = "offbook"

# Settings that stop clients from contacting other hosts: telemetry, price lists, update checks.
QUIET_ENV = {
    "AGNO_TELEMETRY": "false",
    "AIDER_ANALYTICS_DISABLE": "true",
    "AIDER_CHECK_UPDATE": "false",
    "ANONYMIZED_TELEMETRY": "False",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CONTINUE_CLI_AUTO_UPDATED": "true",  # Continue would update itself with npm
    "CONTINUE_CLI_ENABLE_TELEMETRY": "0",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "DISABLE_TELEMETRY": "true",  # Open Interpreter
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1,localhost",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "no_proxy": "127.0.0.1,localhost",
}

# Arguments for the commands that do not read the base URL from the environment.
CLI_ARGUMENTS = {
    "codex": (
        *("-c", 'openai_base_url="{url}/v1"', "-c", "analytics.enabled=false"),
        *("--disable", "plugins"),
    ),
}


# opencode reads base URLs from its configuration only; this one is merged with the user's.
OPENCODE_CONFIG = (
    '{{"provider": {{'
    '"openai": {{"options": {{"baseURL": "{url}/v1"}}}}, '
    '"anthropic": {{"options": {{"baseURL": "{url}/v1"}}}}, '
    '"google": {{"options": {{"baseURL": "{url}/v1beta"}}}}'
    "}}}}"
)


def client_env(url: str) -> dict[str, str]:
    """Return the environment in which the clients of all providers use this base URL."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": API_KEY,
        "CODEX_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": API_KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_BASE_URL": url,
        "GEMINI_API_KEY": API_KEY,
        "GOOGLE_GENERATIVE_AI_API_KEY": API_KEY,
        "OPENCODE_CONFIG_CONTENT": OPENCODE_CONFIG.format(url=url),
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
        "AWS_BEARER_TOKEN_BEDROCK": API_KEY,
        **QUIET_ENV,
    }


def client_arguments(url: str) -> dict[str, list[str]]:
    """Return the arguments that point a command at this base URL, by its name."""
    return {
        name: [argument.format(url=url) for argument in arguments]
        for name, arguments in CLI_ARGUMENTS.items()
    }
