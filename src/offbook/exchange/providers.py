"""The table of providers: dialects of their requests, hosts, settings of their clients, prices.

Each provider declares itself in the folder of its dialect; `DIALECTS` is the only place that names
them. Every guarded test sets `QUIET_ENV`, so this module imports nothing until a provider is used.
"""

from __future__ import annotations

import os
import re
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from offbook.capability import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offbook.exchange.dialects.dialect import (
        Dialect,
        HttpRequest,
        HttpResponse,
        ModelPrice,
        Provider,
    )
    from offbook.exchange.model import Usage

# The folders in `dialects/`, in the order in which they are asked whether they claim a request.
DIALECTS = (
    "chat",
    "responses",
    "anthropic",
    "gemini",
    "bedrock",
    "ollama",
    "cohere",
    "mistral",
)


@cache
def all_providers() -> Mapping[str, Provider]:
    """Return the providers by the names of their dialects."""
    modules = [import_module(f"offbook.exchange.dialects.{folder}") for folder in DIALECTS]
    return {module.PROVIDER.name: module.PROVIDER for module in modules}


@cache
def load_dialect(name: str, rules: frozenset[str] | None = None) -> Dialect:
    """Return the dialect with this name, which validates requests against these rules, or all."""
    from offbook.exchange.dialects.wire import ALL_RULES

    # Late imports for start-up time: a client uses one dialect, and the others stay unloaded.
    return load(all_providers()[name].dialect)(ALL_RULES if rules is None else rules)


def all_dialects() -> tuple[Dialect, ...]:
    """Return every dialect, validating requests as its provider does."""
    return tuple(load_dialect(name) for name in all_providers())


def detect_dialect(
    http_request: HttpRequest, rules: frozenset[str] | None = None
) -> Dialect | None:
    """Return the dialect of this request, or None if no dialect claims it.

    The provider of the host is asked first: several formats share a path.
    """
    for name in _names_for(http_request.host):
        dialect = load_dialect(name, rules)
        if dialect.claims(http_request):
            return dialect
    return None


@lru_cache
def _names_for(host: str) -> tuple[str, ...]:
    """Return the names of the dialects in the order in which they are asked."""
    owner = _host_owners().get(host)
    return (owner, *all_providers()) if owner else tuple(all_providers())


def unsupported_path(http_request: HttpRequest) -> HttpResponse:
    """Return the error for a path that no dialect claims, in the form of the host's provider."""
    from offbook.errors import ModelError

    name = _host_owners().get(http_request.host) or next(iter(all_providers()))
    message = f"Offbook does not support {http_request.method} {http_request.path}"
    return load_dialect(name).encode_error(ModelError(message, status=404, details={"code": ""}))


@cache
def _host_owners() -> Mapping[str, str]:
    """Return the name of the dialect for each host of a provider."""
    return {host: p.name for p in all_providers().values() for host in p.hosts}


def dialect_detector(lenient: Iterable[str]) -> Callable[[HttpRequest], Dialect | None]:
    """Return `detect_dialect` with all validation rules except these."""
    from offbook.exchange.dialects.wire import ALL_RULES, rules_except

    rules = rules_except(lenient)
    if rules == ALL_RULES:
        return detect_dialect
    return lambda http_request: detect_dialect(http_request, rules)


# ------------------------------------------------------------------------------- hosts

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class ModelHosts:
    """The addresses of models: known providers, and the base URLs of this run.

    The base URLs in environment variables such as `OPENAI_BASE_URL` count too: an agent that is
    configured for a gateway is intercepted there.
    """

    def __init__(self, urls: tuple[str, ...] = ()) -> None:
        from urllib.parse import urlsplit

        providers = all_providers().values()
        self._hosts = frozenset(host for provider in providers for host in provider.hosts)
        self._local_ports = {port for provider in providers for port in provider.local_ports}
        patterns = [p for o in providers for p in (*o.host_patterns, *o.region_patterns)]
        self._pattern = re.compile("|".join(patterns))
        variables = [v for p in providers for v in (*p.url_variables, *p.gateway_variables)]
        self._base_urls: set[tuple[str, int | None]] = set()
        for url in (*urls, *(os.environ.get(name, "") for name in variables)):
            if url:
                # OLLAMA_HOST may be a bare `host:port`.
                parts = urlsplit(url if "//" in url else f"http://{url}")
                port = parts.port or DEFAULT_PORTS.get(parts.scheme)
                self._base_urls.add(((parts.hostname or "").lower(), port))

    # Every request of a run is looked up here, also those to other servers.
    def __contains__(self, address: tuple[str, int | None]) -> bool:
        host, port = address
        name = host.lower()
        return (
            name in self._hosts
            or (name, port) in self._base_urls
            or (port in self._local_ports and name in LOCAL_HOSTS)
            or self._pattern.fullmatch(name) is not None
        )


TIKTOKEN_HOST = "openaipublic.blob.core.windows.net"  # where tiktoken finds its tables


def explain_refusal(
    host: str, port: int | None, *, place: Literal["run", "test", "command"] = "run"
) -> str:
    """Return what to do about a refused connection of a run, of the rest of a test, of a command.

    A client that is answered in process sends nothing to a model. So one that is refused
    opens sockets itself, or it is not part of a run.
    """
    address = host if port is None else f"{host}:{port}"
    allow = {
        "run": f"allow it: allow=({address!r},)",
        "test": f"allow it in the settings of pytest: offbook_allow = {address}",
        "command": f"allow it: --allow {address}, or drive(…, allow=({address!r},))",
    }[place]
    if host == TIKTOKEN_HOST:
        tables = (
            "tiktoken loads its tables on first use: load them once, and set TIKTOKEN_CACHE_DIR"
        )
        return f"{tables} to their folder; or {allow}"
    if (host, port) in ModelHosts():
        fix = {
            "run": "its client is not intercepted: drive(…, serve=True) gives it a server",
            "test": "the agent ran outside of drive: pass the function to drive(…)",
            "command": "pip install 'offbook[proxy]': the script answers it then",
        }[place]
        return f"{fix}; or {allow}"
    if place == "run":
        return f"if it is a model, let the source answer it: urls=['https://{host}']; or {allow}"
    return allow


# ----------------------------------------------------------------------------- clients

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

# Hosts of telemetry and updates that no setting stops. They are refused, and do not fail a run.
QUIET_HOSTS = {
    "api.continue.dev",  # Continue
    "registry.npmjs.org",  # opencode looks for its plugins
}


def client_env(url: str, environment: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment in which the clients of all providers use this base URL.

    Other base URLs and keys of models are replaced if `environment` has them: a key of the user
    never goes to a process whose model is scripted.
    """
    from offbook.exchange.dialects.dialect import API_KEY, TO_HOST
    from offbook.exchange.messages import to_json

    providers = all_providers().values()
    env = {
        name: value.format(url=url)
        for provider in providers
        for name, value in provider.client_env.items()
    }
    for provider in providers:
        for host, client in provider.host_clients.items():
            env |= {name: f"{url}{TO_HOST}{host}{path}" for name, path in client.urls.items()}
            env |= dict.fromkeys(client.keys, API_KEY)
        env |= {
            name: value.format(url=url)
            for name, value in provider.replaced_env.items()
            if name in environment
        }
    # opencode reads base URLs from its configuration only; this one is merged with the user's.
    options = {
        name: {"options": {"baseURL": base_url.format(url=url)}}
        for provider in providers
        for name, base_url in provider.opencode.items()
    }
    return {**env, "OPENCODE_CONFIG_CONTENT": to_json({"provider": options}).decode(), **QUIET_ENV}


def missing_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a placeholder for each key of a model that is not set; SDKs refuse to start."""
    from offbook.exchange.dialects.dialect import API_KEY

    missing = dict.fromkeys((name for name in _key_names() if name not in environment), API_KEY)
    for provider in all_providers().values():
        # An SDK that finds keys under two names warns, or takes ours.
        if any(name in environment for name in provider.key_variables):
            for name in (*provider.key_variables, *provider.client_env):
                missing.pop(name, None)
    return missing


@cache
def _key_names() -> list[str]:
    from offbook.exchange.dialects.dialect import API_KEY

    return [name for name, value in client_env("").items() if value == API_KEY]


def without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables except the keys of models; ours stay."""
    from offbook.exchange.dialects.dialect import API_KEY

    known = {
        name
        for provider in all_providers().values()
        for name in (*provider.key_variables, *client_env("", provider.replaced_env))
        if name.endswith(("_KEY", "_TOKEN", "_AD_TOKEN", "_BEDROCK"))
    }
    return {n: value for n, value in environment.items() if n not in known or value == API_KEY}


def client_arguments(url: str) -> dict[str, list[str]]:
    """Return the arguments that point a command at this base URL, by its name."""
    return {
        name: [argument.format(url=url) for argument in arguments]
        for provider in all_providers().values()
        for name, arguments in provider.client_arguments.items()
    }


# ------------------------------------------------------------------------------ prices

MILLION = 1_000_000
# A snapshot of a model costs the same: gpt-5-2025-08-07, claude-opus-4-5-20251101.
_SNAPSHOT = r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$"


@cache
def list_prices() -> Mapping[str, ModelPrice]:
    """Return the list prices of all providers, by model.

    They are those in the data file of litellm 1.106.2, read on 16 November 2026: dollars for a
    million tokens, without discounts, batches and surcharges for long contexts. Prices change; a
    pack that gates on costs states its own:

        [prices.gpt-5]
        input = 1.25
        output = 10.0
        cache-read = 0.125

    A model that is in neither has no price, and a threshold on its cost has no data.
    """
    return {name: price for p in all_providers().values() for name, price in p.prices.items()}


def find_price(model: str, prices: Mapping[str, ModelPrice]) -> ModelPrice | None:
    """Return the price of a model: that of the pack, else that of the table."""
    base = re.sub(_SNAPSHOT, "", model)
    for table in (prices, list_prices()):
        if price := table.get(model) or table.get(base):
            return price
    return None


def cost_of(usage: Usage, price: ModelPrice) -> float:
    """Return the cost of tokens in dollars; cached ones have their own price if it is known."""
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    plain = max(0, usage.input - usage.cache_read - usage.cache_write)
    cached = usage.cache_read * read + usage.cache_write * write
    return (plain * price.input + cached + usage.output * price.output) / MILLION
