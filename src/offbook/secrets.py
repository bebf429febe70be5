"""Secrets, known by their shape and by the names of their fields. None may reach a disk.

The tables err on the side of hiding: a text that only looks like a key is hidden too. Every rule
has a word that must be there for it to apply; all words are looked for in one pass, so that a
text without any costs next to nothing. The door of ahocorasick-rs.
"""

from __future__ import annotations

import base64
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from ahocorasick_rs import BytesAhoCorasick as Finder

MASK = "[API_KEY]"
SHORTEST = 8
FOLDERS = {"PWD", "OLDPWD"}  # of the shell, not passwords


class _Rule(NamedTuple):
    """Around `word`, `pattern` finds what to hide: its last group, or all of it.

    It begins at the word, or up to `back` bytes before; `folded` patterns read lower case.
    """

    word: bytes
    pattern: re.Pattern[bytes]
    folded: bool = True
    back: int = 0


# What keys look like: the prefixes that their makers publish so that they can be found.
SHAPES = {
    "sk-": r"sk-[A-Za-z0-9_-]{12,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
    "aiza": r"AIza[0-9A-Za-z_-]{20,}",  # Google
    "ya29.": r"ya29\.[0-9A-Za-z_-]{16,}",
    "gocspx-": r"GOCSPX-[0-9A-Za-z_-]{16,}",
    "akia": r"AKIA[0-9A-Z]{12,}",  # AWS
    "asia": r"ASIA[0-9A-Z]{12,}",
    "aroa": r"AROA[0-9A-Z]{12,}",
    "absk": r"ABSK[0-9A-Za-z+/=]{20,}",
    "ghp_": r"ghp_[A-Za-z0-9]{16,}",
    "gho_": r"gho_[A-Za-z0-9]{16,}",
    "ghu_": r"ghu_[A-Za-z0-9]{16,}",
    "ghs_": r"ghs_[A-Za-z0-9]{16,}",
    "ghr_": r"ghr_[A-Za-z0-9]{16,}",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{16,}",
    "glpat-": r"glpat-[A-Za-z0-9_-]{12,}",
    "xox": r"xox[abeprs]-[A-Za-z0-9-]{8,}",  # Slack
    "xapp-": r"xapp-[A-Za-z0-9-]{8,}",
    "hooks.slack.com/": r"hooks\.slack\.com/services/([A-Za-z0-9/_-]{8,})",
    "k_live_": r"[sr]k_live_[0-9A-Za-z]{8,}",  # Stripe
    "k_test_": r"[sr]k_test_[0-9A-Za-z]{8,}",
    "whsec_": r"whsec_[0-9A-Za-z+/=]{12,}",
    "hf_": r"hf_[A-Za-z0-9]{16,}",
    "gsk_": r"gsk_[A-Za-z0-9]{16,}",
    "xai-": r"xai-[A-Za-z0-9]{16,}",
    "r8_": r"r8_[A-Za-z0-9]{16,}",
    "pplx-": r"pplx-[A-Za-z0-9]{16,}",
    "fw_": r"fw_[A-Za-z0-9]{16,}",
    "nvapi-": r"nvapi-[A-Za-z0-9_-]{16,}",
    "tgp_v1_": r"tgp_v1_[A-Za-z0-9_-]{16,}",
    "npm_": r"npm_[A-Za-z0-9]{20,}",
    "pypi-": r"pypi-[A-Za-z0-9_-]{16,}",
    "dop_v1_": r"dop_v1_[a-f0-9]{32,}",
    "dckr_pat_": r"dckr_pat_[A-Za-z0-9_-]{16,}",
    "sg.": r"SG\.[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{12,}",
    "key-": r"key-[0-9a-f]{32}",
    "lsv2_": r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{16,}",
    "sntrys_": r"sntrys_[A-Za-z0-9_=+/]{16,}",
    "phc_": r"phc_[A-Za-z0-9]{16,}",
    "dapi": r"dapi[0-9a-f]{32}",  # Databricks
    "hvs.": r"hvs\.[A-Za-z0-9_-]{16,}",  # Vault
    "shpat_": r"shpat_[0-9A-Za-z]{16,}",  # Shopify
    "lin_api_": r"lin_api_[A-Za-z0-9]{16,}",
    "ntn_": r"ntn_[A-Za-z0-9]{16,}",  # Notion
    "sbp_": r"sbp_[A-Za-z0-9]{16,}",  # Supabase
    "glsa_": r"glsa_[A-Za-z0-9_]{16,}",  # Grafana
    "nrak-": r"NRAK-[A-Z0-9]{16,}",  # New Relic
    "pscale_tkn_": r"pscale_tkn_[A-Za-z0-9_.-]{16,}",
    "csk-": r"csk-[A-Za-z0-9]{16,}",  # Cerebras
    "tvly-": r"tvly-[A-Za-z0-9-]{16,}",  # Tavily
    "e2b_": r"e2b_[A-Za-z0-9]{16,}",
    "atatt3": r"ATATT3[A-Za-z0-9_=-]{16,}",  # Atlassian
    "age-secret-key-": r"AGE-SECRET-KEY-1[0-9A-Z]{16,}",
    "pmak-": r"PMAK-[A-Za-z0-9-]{16,}",  # Postman
    "dp.pt.": r"dp\.pt\.[A-Za-z0-9]{16,}",  # Doppler
    "gldt-": r"gldt-[A-Za-z0-9_-]{12,}",
    "glrt-": r"glrt-[A-Za-z0-9_-]{12,}",
    "rubygems_": r"rubygems_[0-9A-Za-z]{16,}",
    "eyj": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}",  # web tokens
    "private key-----": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[^\"]*?"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|(?=\\*\")|\Z)",
    "://": r"://[^\s:/@\"'\\]*:([^\s/@\"'\\]+)@",  # a password in a URL
    "bearer": r"(?i:bearer)[ \t]+(?=[^\s\"']*[0-9._~+/=-])([A-Za-z0-9._~+/=-]{8,})",
    ":aa": r"[0-9]{8,10}(:AA[A-Za-z0-9_-]{30,36})",  # Telegram
}
# Names that a secret stands behind, in lower case.
NAMES = (
    *("api_key", "api-key", "apikey", "access_key", "accesskey", "account_key", "accountkey"),
    *("private_key", "signing_key", "secret", "secret_key", "secretkey", "client_secret"),
    *("password", "passwd", "passphrase", "pwd", "credential", "credentials"),
    *("access_token", "access-token", "accesstoken", "accessjwt", "refresh_token"),
    *("refreshtoken", "refreshjwt", "id_token", "session_token", "auth_token", "authtoken"),
    *("auth-token", "_token", "-token", "webhook_url"),
)
WHOLE = ("authorization", "cookie")  # everything behind them is secret, spaces and all
QUERY = ("key", "token", "sig", "signature", "auth", "code")
OPEN = r"\s*[:=]\s*"
QUOTED = (
    rf"[\"']?{OPEN}\"((?:[^\"\\]|\\.)+)",
    rf"[\"']?{OPEN}'([^'\n]+)",
    # in JSON in JSON, however deep: it ends where a quote has as many backslashes as the first
    rf"(\\+)\"{OPEN}\1\"((?:[^\"\\]|\\+[^\"\\]|\1\\+\")+)",
)
BARE = r"(?:\s*=\s*|:[ \t]+)([^\s\"'\\&,;}\])]{3,})"
FLAG = r"(?:[ \t]+|\\*\",[ \t]*\\*\")([^\s\"'\\,]{3,})"


BACK = {"k_live_": 1, "k_test_": 1, "private key-----": 40, ":aa": 10}


def _named(name: str) -> Iterator[_Rule]:
    word = name.encode()
    for tail in (*QUOTED, BARE):
        yield _Rule(word, re.compile(word + tail.encode(), re.DOTALL))
    flag = b"--" + word.replace(b"_", b"-")
    yield _Rule(flag, re.compile(flag + FLAG.encode()))


def _rules() -> Iterator[_Rule]:
    for word, shape in SHAPES.items():
        pattern = re.compile(shape.encode(), re.DOTALL)
        yield _Rule(word.encode(), pattern, folded=False, back=BACK.get(word, 0))
    for name in NAMES:
        yield from _named(name)
    for name in WHOLE:
        word = name.encode()
        for tail in (*QUOTED, r":[ \t]+([^\r\n\"'\\]+)"):
            yield _Rule(word, re.compile(word + tail.encode()))
    for name in QUERY:
        word = f"{name}=".encode()
        yield _Rule(word, re.compile(rb"[?&;]" + word + rb"([^&\s\"'\\<>#;]+)"), back=1)
    long = QUOTED[0].replace("+)", "{16,})")
    yield _Rule(b'"token"', re.compile(b'"token' + long.encode()))
    yield _Rule(b"--token", re.compile(b"--token" + FLAG.encode()))


@lru_cache(maxsize=1)
def _table() -> tuple[Finder, tuple[tuple[_Rule, ...], ...]]:
    from ahocorasick_rs import BytesAhoCorasick

    by_word: dict[bytes, list[_Rule]] = {}
    for rule in _rules():
        by_word.setdefault(rule.word, []).append(rule)
    return BytesAhoCorasick(list(by_word)), tuple(tuple(rules) for rules in by_word.values())


def hide_bytes(raw: bytes, known: Iterable[bytes] = ()) -> bytes:
    """The bytes without anything that looks like a secret, or is one of those known."""
    mask = MASK.encode()
    for value in known:
        if value in raw:
            raw = raw.replace(value, mask)
    low = raw.lower()
    finder, rules = _table()
    spans: list[tuple[int, int]] = []
    for word, start, _ in finder.find_matches_as_indexes(low, overlapping=True):
        for rule in rules[word]:
            match = _apply(rule, low if rule.folded else raw, start)
            if match is not None:
                first, last = match.span(rule.pattern.groups)
                if not raw.startswith(mask, first):
                    spans.append((first, last))
    return _cut(raw, spans, mask) if spans else raw


def _apply(rule: _Rule, text: bytes, at: int) -> re.Match[bytes] | None:
    if not rule.back:
        return rule.pattern.match(text, at)
    for start in range(max(0, at - rule.back), at):
        match = rule.pattern.match(text, start)
        if match is not None:
            return match
    return None


def _cut(raw: bytes, spans: list[tuple[int, int]], mask: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end in sorted(spans):
        if end <= at:
            continue
        first = max(start, at)
        parts.append(raw[at:first])
        if start >= at:
            parts.append(mask)
        at = end
    parts.append(raw[at:])
    return b"".join(parts)


def hide_secrets(text: str, known: Iterable[str] = ()) -> str:
    """The text without anything that looks like a secret, or is one of those known."""
    raw = text.encode("utf-8", "surrogatepass")
    hidden = hide_bytes(raw, [value.encode("utf-8", "surrogateescape") for value in known])
    return text if hidden is raw else hidden.decode("utf-8", "surrogatepass")


_SECRET_NAME = re.compile(
    "(?:"
    + "|".join(re.escape(name) for name in (*NAMES, *WHOLE))
    + r"|(?:^|_)token)$|(?:^|[-_])(?:secret|password|api[-_]?key)(?:$|[-_])",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def names_secret(field: str) -> bool:
    """Whether a field of this name holds a secret, whatever it looks like."""
    return _SECRET_NAME.search(field) is not None


def known_secrets(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The secrets of an environment, this process's by default; plain, in base64 and in hex.

    Those that `keep_secret` was told belong to this process's.
    """
    own = {**os.environ, **_GIVEN.get()} if _GIVEN.get() else os.environ
    variables = own if environment is None else environment
    names = [name for name in variables if names_secret(name) and name not in FOLDERS]
    values = (variables[name] for name in names if len(variables[name]) >= SHORTEST)
    return _spellings(frozenset(values))


_GIVEN: ContextVar[Mapping[str, str]] = ContextVar("offbook_given", default={})  # noqa: B039 - never changed


@contextmanager
def keep_secret(environment: Mapping[str, str]) -> Generator[None]:
    """Inside, what this environment holds for an agent is secret, too."""
    token = _GIVEN.set({**_GIVEN.get(), **environment})
    try:
        yield
    finally:
        _GIVEN.reset(token)


@lru_cache(maxsize=64)
def _spellings(values: frozenset[str]) -> tuple[str, ...]:
    found: set[str] = set()
    for value in values:
        raw = value.encode("utf-8", "surrogateescape")
        found |= {value, base64.b64encode(raw).decode().rstrip("="), raw.hex()}
    return tuple(sorted(found, key=len, reverse=True))
