"""A dialect is one folder and one line: no other module names it or what belongs to it."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from offbook.exchange import all_dialects, all_providers
from offbook.exchange.dialects import Provider
from offbook.exchange.providers import LOCAL_HOSTS

# What other modules name for another reason, by module.
EXCEPTIONS = {
    "evals/classifier_eval.py": (
        "OLLAMA_HOST ollama",
        "--model ollama:NAME reads it as Ollama's client does",
    ),
    "exchange/providers.py": (
        "anthropic bedrock cohere gemini mistral ollama",
        "the table of dialects",
    ),
    "runs/agents.py": ("gemini", "the program of the Gemini CLI"),
    "surfaces/cli/first_steps.py": ("anthropic openai", "the tested versions of the packages"),
    "sources/importers/agent_logs.py": ("anthropic openai", "Claude Code's and Codex' models"),
    "sources/live.py": ("openai-chat", "the dialect of a request that came in none"),
    "subjects/clis/clients.py": (
        "OPENAI_API_KEY gemini openai",
        "the configuration of Codex, Continue, Qwen Code and Ralph, and the program of Gemini CLI",
    ),
    "subjects/clis/pi/pi_agent.py": ("OPENAI_API_KEY", "the configuration file of pi"),
    "subjects/frameworks/anthropic_runner.py": ("anthropic", "the adapter of the package"),
    "subjects/frameworks/framework.py": ("openai", "the package of documented exceptions"),
    "trace/redaction.py": ("gemini", "the program of the Gemini CLI"),
}


def parts_of(provider: Provider) -> set[str]:
    """The words that only the folder of the dialect may contain."""
    folder = provider.dialect.partition(":")[0].split(".")[-2]
    return {
        f"dialects.{folder}",
        provider.name,
        provider.otel_name,
        provider.url,
        *{urlsplit(provider.url).hostname or ""} - LOCAL_HOSTS,
        *provider.hosts,
        *provider.url_variables,
        *provider.key_variables,
        *provider.gateway_variables,
        *provider.client_env,
        *provider.replaced_env,
    }


def strings_of(source: str) -> Iterator[str]:
    """Yield the strings of a module, and the modules that it imports."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.ImportFrom(module=str(module)):
                yield ".".join(module.removeprefix("offbook.exchange.").split(".")[:2])
            case _:
                pass


def words_in(source: str, words: Iterable[str]) -> set[str]:
    named = {word for word in words if word in source}  # few: to parse all takes seconds
    return named.intersection(strings_of(source)) if named else set()


def test_no_other_module_names_a_dialect(root: Path):
    package = root / "src" / "offbook"
    folders = package / "exchange" / "dialects"
    words = {word for provider in all_providers().values() for word in parts_of(provider)}
    found = {
        str(path.relative_to(package)): words_in(path.read_text(), words)
        for path in sorted(package.rglob("*.py"))
        if folders not in path.parents[1:]
    }
    allowed = {name: set(exception[0].split()) for name, exception in EXCEPTIONS.items()}
    named = {name: words for name, words in found.items() if words}
    assert {
        name: named.get(name) for name in named | allowed if named.get(name) != allowed.get(name)
    } == {}


@pytest.mark.parametrize(
    "line",
    [
        'URL = "https://bedrock-runtime.us-east-1.amazonaws.com"',
        'KEY = os.environ["AWS_BEARER_TOKEN_BEDROCK"]',
        'IDS = {"bedrock": "tooluse_"}',
        "from offbook.exchange.dialects.bedrock.bedrock_dialect import Bedrock",
    ],
)
def test_a_module_that_names_a_dialect_is_found(line: str):
    assert words_in(line, parts_of(all_providers()["bedrock"]))


def test_each_provider_has_the_name_of_its_dialect():
    assert [dialect.name for dialect in all_dialects()] == list(all_providers())
