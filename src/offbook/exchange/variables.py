"""The environment in which clients of every provider find a model under one base URL."""

from __future__ import annotations

KEY = "offbook"
QUIET = {  # what keeps clients from talking to others beside the model
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1,localhost",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "no_proxy": "127.0.0.1,localhost",
}


def list_variables(url: str) -> dict[str, str]:
    """What a process must have in its environment to find the model there, and nobody else."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_BASE_URL": url,
        "GEMINI_API_KEY": KEY,
        **QUIET,
    }
