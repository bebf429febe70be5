"""A command whose model is scripted reaches nothing else, and its run names what it tried."""

from __future__ import annotations

import json
import os
import sys

import pytest

from offbook import Playbook, say, when
from offbook.exchange import all_providers
from offbook.runs import CommandResult, run_command

SECRET = "sk-of-the-user-0123456789"
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
ASK = """
import json, os, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body)).read()
"""


def run_python(code: str, **variables: str) -> CommandResult:
    """Run Python code against a script of one turn."""
    source = Playbook()
    source.load(when("Hi", [say("Hello.")]))
    environment = {**os.environ, **variables}
    return run_command(source, [sys.executable, "-c", code], echo=False, environment=environment)


def environment_of(**variables: str) -> dict[str, str]:
    """Return the environment of a command in which the user has these variables."""
    result = run_python(ASK + PRINT_ENVIRONMENT, **variables)
    result.raise_failure()
    return json.loads(result.output)


KEYS = {
    name
    for provider in all_providers().values()
    for name in (*provider.client_env, *provider.replaced_env, *provider.key_variables)
    if name.endswith(("_KEY", "_TOKEN"))
}


def test_no_key_of_a_model_is_passed_to_a_command():
    environment = environment_of(**dict.fromkeys(KEYS, SECRET))
    assert {name: environment[name] for name in KEYS} == dict.fromkeys(KEYS, "offbook")


def test_another_variable_of_the_user_is_passed_to_a_command():
    assert environment_of(STRIPE_API_KEY=SECRET)["STRIPE_API_KEY"] == SECRET


@pytest.fixture(scope="module")
def plain_environment() -> dict[str, str]:
    return environment_of()


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "GROQ_BASE_URL"),
        *("MISTRAL_API_BASE", "CO_API_URL", "TOGETHER_BASE_URL", "OPENROUTER_API_BASE"),
        *("OLLAMA_HOST", "DEEPSEEK_API_BASE", "XAI_API_BASE", "CEREBRAS_BASE_URL"),
    ],
)
def test_the_base_url_of_each_provider_is_that_of_the_script(
    plain_environment: dict[str, str], name: str
) -> None:
    assert plain_environment[name].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("name", ["AZURE_OPENAI_ENDPOINT", "ANTHROPIC_VERTEX_BASE_URL"])
def test_a_base_url_that_selects_a_provider_is_replaced_and_not_set(
    plain_environment: dict[str, str], name: str
) -> None:
    assert name not in plain_environment
    assert environment_of(**{name: "https://gateway.example"})[name].startswith("http://127.0.0.1:")
