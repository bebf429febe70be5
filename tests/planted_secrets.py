"""Secrets that tests plant: 60 formats in 20 contexts, 200 for each of 6 groups of channels.

Every group has each format and each context, and all groups together have each pair of the two. So
every pair of format and context, format and channel, and context and channel is tested. Values are
drawn by a seed: `OFFBOOK_SECRETS_SEED=7` draws others.
"""

from __future__ import annotations

import base64
import os
import string
from collections.abc import Callable
from random import Random
from typing import NamedTuple
from urllib.parse import quote

SEED = int(os.environ.get("OFFBOOK_SECRETS_SEED", "1"))
LETTERS, HEX = string.ascii_letters, "0123456789abcdef"
WORD, LOWER, UPPER = (
    LETTERS + string.digits,
    string.ascii_lowercase + string.digits,
    string.ascii_uppercase + string.digits,
)

# A part in brackets is drawn: its alphabet and its length. Others stay as they are.
ALPHABETS = {
    "w": WORD,
    "l": LOWER,
    "u": UPPER,
    "h": HEX,
    "H": HEX.upper(),
    "a": LETTERS,
    "s": string.ascii_lowercase,
    "c": string.ascii_uppercase,
    "d": string.digits,
    "b": f"{WORD}+/",
    "p": "!^*~",
}
FORMATS = {
    "OpenAI": "sk-proj-[w:48]T3BlbkFJ[w:48]",
    "Anthropic": "sk-ant-api03-[w:93]AA",
    "OpenRouter": "sk-or-v1-[h:64]",
    "Google": "AIza[w:35]",
    "Google OAuth": "ya29.[w:60]",
    "Groq": "gsk_[w:52]",
    "xAI": "xai-[w:80]",
    "Hugging Face": "hf_[a:34]",
    "Replicate": "r8_[w:37]",
    "Perplexity": "pplx-[w:48]",
    "NVIDIA": "nvapi-[w:64]",
    "LangSmith": "lsv2_pt_[h:32]_[h:10]",
    "Tavily": "tvly-dev-[w:32]",
    "AWS": "AKIA[u:16]",
    "Azure": "[w:52]JQQJ99BA[w:24]",
    "DigitalOcean": "dop_v1_[h:64]",
    "Databricks": "dapi[h:32]",
    "Heroku": "HRKU-AA[w:58]",
    "Netlify": "nfp_[w:36]",
    "Supabase": "sbp_[h:40]",
    "GitHub": "ghp_[w:36]",
    "GitHub, fine": "github_pat_[w:22]_[w:59]",
    "GitLab": "glpat-[w:20]",
    "Atlassian": "ATATT3xFfGF0[w:170]",
    "npm": "npm_[w:36]",
    "PyPI": "pypi-AgEIcHlwaS5vcmc[w:120]",
    "RubyGems": "rubygems_[h:48]",
    "Docker": "dckr_pat_[w:27]",
    "Buildkite": "bkua_[h:40]",
    "Sonar": "squ_[h:40]",
    "Pulumi": "pul-[h:40]",
    "Terraform": "[w:14].atlasv1.[w:67]",
    "Vault": "hvs.[w:90]",
    "Doppler": "dp.pt.[w:43]",
    "age": "AGE-SECRET-KEY-1[u:58]",
    "Tailscale": "tskey-auth-[w:12]CNTRL-[w:32]",
    "Sentry": "sntryu_[h:64]",
    "Grafana": "glsa_[w:32]_[h:8]",
    "New Relic": "NRAK-[u:27]",
    "Slack": "xoxb-[d:12]-[d:12]-[w:24]",
    "Telegram": "1[d:9]:AA[w:33]",
    "Twilio": "SK[h:32]",
    "SendGrid": "SG.[w:22].[w:43]",
    "Mailchimp": "[h:32]-us12",
    "Stripe": "sk_live_[w:24]",
    "Shopify": "shpat_[h:32]",
    "Linear": "lin_api_[w:40]",
    "Notion": "ntn_[d:11][w:35]",
    "a web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx[w:12].[w:43]",
    # without a format: only the name next to it says what it is
    "letters": "[a:24]",
    "small letters": "[s:24]",
    "capitals": "[c:24]",
    "letters and digits": "[w:20]",
    "small letters and digits": "[l:24]",
    "hexadecimal": "[h:40]",
    "capital hexadecimal": "[H:32]",
    "base64": "[b:43]=",
    "UUID": "[h:8]-[h:4]-[h:4]-[h:4]-[h:12]",
    "password": "[w:5][p:1][w:5][p:1][w:3][d:2]",
    "leetspeak": "Tr0ub4dor[p:1][d:3]",
}
CONTEXTS: dict[str, str | Callable[[str], str]] = {
    "variable": "export SHOP_API_KEY={}",
    "Dockerfile": "ENV SHOP_API_KEY {}",
    "option": "deploy --token {} --dry-run",
    "nested JSON": '{{"arguments": "{{\\"password\\": \\"{}\\"}}"}}',
    "YAML": "db_password: {}",
    "Kubernetes": "- name: DB_PASSWORD\n  value: {}",
    "Terraform": 'variable "db_password" {{\n  default = "{}"\n}}',
    "ini file": "[db]\npassword={}",
    "XML": "<password>{}</password>",
    "CSV": "name,password,role\nada,{},admin",
    "table of Markdown": "| API_KEY | `{}` |",
    "repr": "Config(user='ada', password='{}')",
    "repr of bytes": "{{b'client_secret': b'{}'}}",
    "basic authentication": lambda value: f"Authorization: Basic {basic(value)}",
    "URL": lambda value: f"https://ada:{quote(value, safe='')}@shop.example/api",
    "encoded URL": lambda value: f"?next=%2Fcb%3Fpassword%3D{quote(value, safe='')}%26n%3D1",
    "HTML": '<input name="api_key" value="{}">',
    "SQL": "ALTER USER ada WITH PASSWORD '{}';",
    "traceback": '  File "shop.py", line 3, in pay\n    connect(password="{}")',
    "color": "\x1b[36mpassword\x1b[0m: \x1b[33m{}\x1b[0m",
}
# The channels of each group; a test of the group shows its texts in each of them.
CHANNELS = {
    "cassette": ("cassette", "trace", "journal", "mismatch"),
    "commands": ("terminal", "--wire", "--events", "page", "OTLP", "importers", "comparison"),
    "loop": ("JUnit", "TAP", "CTRF", "JSON", "inspection"),
    "mcp": ("MCP", "snapshot of a workspace"),
    "pytest": ("pytest", "JUnit of pytest", "golden", "exception chain"),
    "locals": ("pytest -l",),
}
PER_GROUP = 200
# The variables that have further secrets: known values, found without any name.
ENVIRONMENT = (
    *("SHOP_PASSWORD", "SHOP_API_KEY", "DB_SECRET", "MY_TOKEN", "SERVICE_CREDENTIALS"),
    *("SHOP_PW", "DB_PASS", "DATABASE_PASSWD", "SIGNING_KEY", "CLIENT_SECRET", "AUTH_JWT"),
    "SESSION_COOKIE",
)


class Planted(NamedTuple):
    """A secret, the text that contains it, and the spellings of it that must not be found."""

    format: str
    context: str
    text: str
    spellings: tuple[str, ...]


def basic(value: str) -> str:
    return base64.b64encode(f"ada:{value}".encode()).decode()


def draw(pattern: str, chance: Random) -> str:
    """Return a value of a format."""
    parts: list[str] = []
    for part in pattern.split("["):
        drawn, bracket, rest = part.partition("]")
        alphabet, _, length = drawn.partition(":")
        if not bracket:
            parts.append(part)
            continue
        parts += [*chance.choices(ALPHABETS[alphabet], k=int(length)), rest]
    return "".join(parts)


def plant(group: str, seed: int = SEED) -> list[Planted]:
    """Return 200 secrets for a group of channels, with all formats and contexts."""
    chance = Random(f"{seed} {group}")  # noqa: S311 - a test
    formats, contexts = [*FORMATS], [*CONTEXTS]
    first = [*CHANNELS].index(group) * PER_GROUP
    planted: list[Planted] = []
    for number in range(first, first + PER_GROUP):
        name = formats[number % len(formats)]
        context = contexts[(number + number // len(formats)) % len(contexts)]
        value = draw(FORMATS[name], chance)
        form = CONTEXTS[context]
        text = form.format(value) if isinstance(form, str) else form(value)
        spellings = (value, quote(value, safe=""), basic(value).rstrip("=")[8:])
        planted.append(Planted(name, context, text, spellings))
    return planted


def draw_values(group: str, count: int, seed: int = SEED) -> list[str]:
    """Return values for variables and options."""
    chance = Random(f"{seed} values of {group}")  # noqa: S311 - a test
    return [draw("[w:31]", chance) for _ in range(count)]
