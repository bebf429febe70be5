"""The gate for text that leaves: secrets are masked, control characters escaped, then it is cut.

    outgoing("Authorization: Bearer abc123def456ghi")   # "Authorization: [API_KEY]"
    excerpt(prompt, 80)                                 # masked as a whole, then cut

Terminal, files, reports, pytest, MCP and exceptions use these two. What is a secret:

1. Known values, of the environment and of headers, are hidden always and in every encoding.
2. Keys are hidden wherever their format is certain: a prefix that a provider publishes, between
   word borders, and a digit (`KEYS`).
3. Other values are hidden by name, where the format separates the name from the value
   (`named_values`).

Everything else stays: agents write programs, and these must come out of a cassette unchanged.

Speed: every rule has a word that its matches contain. One pass finds all these words, so a text
without any costs next to nothing.
"""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, quote_plus

from offbook.secrets.named_values import (
    Name,
    compile_pattern,
    has_digit,
    is_secret_name,
    is_secret_value,
    looks_random,
    secret_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    WordFinder = Callable[[bytes], list[tuple[int, int, int]]]

MASK = "[API_KEY]"
_MASK = MASK.encode()
MIN_SECRET_LENGTH = 8
SHELL_FOLDERS = {"PWD", "OLDPWD"}  # variables of the shell that look like passwords


class _Rule(NamedTuple):
    """A pattern whose last group, or whole match, is a secret if `judge` says so.

    It is matched at each occurrence of its word, or up to `lookbehind` bytes before it.
    """

    pattern: bytes
    judge: Callable[[bytes], bool]
    lookbehind: int = 0

    def find(self, raw: bytes, _lower: bytes, start: int, _end: int) -> Iterator[tuple[int, int]]:
        """Yield the position of the secret whose word is at this position."""
        pattern = compile_pattern(self.pattern)
        for at in range(max(0, start - self.lookbehind), start) if self.lookbehind else (start,):
            match = pattern.match(raw, at)
            if match is not None:
                first, last = match.span(pattern.groups)
                if self.judge(raw[first:last]):
                    yield first, last
                return


@lru_cache(maxsize=1)
def _rules_by_word() -> tuple[WordFinder, list[tuple[bytes | None, list[_Rule | Name]]]]:
    """Return a finder of all words, and for each the bytes that may follow it and its rules."""
    by_word: dict[bytes, list[_Rule | Name]] = {}
    for word, shape in KEYS.items():
        pattern = f"{EDGE}(?:{shape}){END}".encode()
        rule = _Rule(pattern, has_digit, LOOKBEHIND.get(word, 0))
        by_word.setdefault(word.encode(), []).append(rule)
    for word, place in PLACES.items():
        rule = _Rule(f"(?s){place}".encode(), is_secret_value, LOOKBEHIND.get(word, 0))
        by_word.setdefault(word.encode(), []).append(rule)
    for name, rule in secret_names().items():
        by_word.setdefault(name, []).append(rule)
    table: list[tuple[bytes | None, list[_Rule | Name]]] = []
    for rules in by_word.values():
        names = [rule for rule in rules if isinstance(rule, Name)]
        following = bytes(byte for name in names for byte in name.formats)
        table.append((following if len(names) == len(rules) else None, rules))
    return word_finder(by_word, table=True), table


def word_finder(words: Iterable[bytes], *, table: bool = False) -> WordFinder:
    """Return a function that finds many words in one pass: (index of the word, start, end).

    With a `table` of all transitions it is four times as fast, and takes four times as long to
    build: 1 ms for 200 words. Only this module imports ahocorasick-rs.
    """
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    automaton = BytesAhoCorasick(words, implementation=Implementation.DFA if table else None)
    return partial(automaton.find_matches_as_indexes, overlapping=True)


def hide_bytes(raw: bytes, known: Iterable[bytes] = ()) -> bytes:
    """Return the bytes without known secrets and without anything that looks like one."""
    for values in (known, _header_secrets):
        for value in values:
            if value in raw:
                raw = raw.replace(value, _MASK)
    spans = _find_spans(raw)
    if not spans:
        return raw  # the same object: callers notice that nothing was hidden
    parts: list[bytes] = []
    position = 0
    for start, end in sorted(spans):
        if end <= position:  # within the span before it
            continue
        parts.append(raw[position : max(start, position)])
        if start >= position:  # spans that overlap get one mask
            parts.append(_MASK)
        position = end
    parts.append(raw[position:])
    return b"".join(parts)


def _find_spans(raw: bytes) -> list[tuple[int, int]]:
    """Return where the texts are that look like a secret."""
    lower = raw.lower()
    find_words, rules = _rules_by_word()
    spans: list[tuple[int, int]] = []
    for word, start, end in find_words(lower):
        following, chosen = rules[word]
        # first the cheapest check: most names are in prose, or parts of other words
        if following is None or lower[end : end + 1] in following:
            for rule in chosen:
                spans += rule.find(raw, lower, start, end)
    return spans


def hide_secrets(text: str, known: Iterable[str] | None = None) -> str:
    """Return the text without known secrets and without anything that looks like one.

    Known are by default the secrets of this process.
    """
    raw = text.encode("utf-8", "surrogatepass")
    known = known_secrets() if known is None else known
    hidden = hide_bytes(raw, [value.encode("utf-8", "surrogateescape") for value in known])
    return text if hidden is raw else hidden.decode("utf-8", "surrogatepass")


def find_secrets(text: str) -> Iterator[str]:
    """Yield the secrets of a text: what `outgoing` would mask."""
    yield from (value for value in known_secrets() if value in text)
    raw = text.encode("utf-8", "surrogatepass")
    for start, end in _find_spans(raw):
        yield raw[start:end].decode("utf-8", "replace")


# --- The gate

# The output of a tool can contain escape sequences: control characters are shown as symbols, so
# that a text cannot control the terminal, nor turn the direction in which it is read.
CONTROL_SYMBOLS = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    0x7F: 0x2421,
}
_CONTROL = re.compile(f"[{re.escape(''.join(map(chr, CONTROL_SYMBOLS)))}]")


def escape_controls(text: str) -> str:
    """Return a text that cannot control the terminal."""
    return text.translate(CONTROL_SYMBOLS) if _CONTROL.search(text) else text


def outgoing(text: str) -> str:
    """Return a text that may leave: without the secrets of this process and control characters."""
    return escape_controls(hide_secrets(text))


def excerpt(text: str, length: int) -> str:
    """Return at most `length` characters of a text; a longer one is masked before it is cut.

    Half a secret is not recognised any more. A text that is not cut is masked where it leaves.
    """
    if len(text) <= length:
        return text
    text = outgoing(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_END = re.compile(rb"-----END [A-Z0-9 ]*PRIVATE KEY")


def safe_split_index(raw: bytes) -> int:
    """Return the index at which a growing output can be split without splitting a secret.

    That is after the last complete line, or before a private key that has not ended yet.
    """
    end = raw.rfind(b"\n") + 1
    for begin in _BEGIN.finditer(raw, 0, end):
        if _END.search(raw, begin.start(), end) is None:
            return begin.start()
    return end


# --- Known values

_EXTRA: ContextVar[Mapping[str, str]] = ContextVar("offbook_given", default={})  # noqa: B039 - never changed


def known_secrets(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the secrets of an environment, by default of this process with `extra_secrets`.

    Each is in plain text, in base64 and in hex, and escaped as in JSON and in URLs.
    """
    own = {**os.environ, **_EXTRA.get()} if _EXTRA.get() else os.environ
    variables = own if environment is None else environment
    names = [name for name in variables if is_secret_name(name) and name not in SHELL_FOLDERS]
    values = (variables[name] for name in names if len(variables[name]) >= MIN_SECRET_LENGTH)
    return _spellings(frozenset(values))


def known_secret_bytes() -> tuple[bytes, ...]:
    """Return the secrets of this process for `hide_bytes`."""
    return tuple(value.encode("utf-8", "surrogateescape") for value in known_secrets())


CREDENTIAL_HEADERS = (
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
)
_headers_seen: set[str] = set()
_header_secrets: tuple[bytes, ...] = ()


def remember_credentials(headers: Mapping[str, str]) -> None:
    """Treat the keys in the headers of a request, with names in lower case, as known from now on.

    Keys that are words ("not-needed") are none.
    """
    global _header_secrets  # noqa: PLW0603 - what a process has seen, it knows
    for name in CREDENTIAL_HEADERS:
        value = headers.get(name)
        if value is None or value in _headers_seen:
            continue
        _headers_seen.add(value)
        key = value.rpartition(" ")[2]
        raw = key.encode("utf-8", "surrogateescape")
        if len(raw) >= MIN_SECRET_LENGTH and looks_random(raw):
            spellings = [
                text.encode("utf-8", "surrogateescape") for text in _spellings(frozenset({key}))
            ]
            _header_secrets = (*_header_secrets, *spellings)


@contextmanager
def extra_secrets(environment: Mapping[str, str]) -> Generator[None]:
    """Treat the secrets of an agent's environment as known in this block."""
    token = _EXTRA.set({**_EXTRA.get(), **environment})
    try:
        yield
    finally:
        _EXTRA.reset(token)


@lru_cache(maxsize=64)
def _spellings(values: frozenset[str]) -> tuple[str, ...]:
    spellings: set[str] = set()
    for value in values:
        raw = value.encode("utf-8", "surrogateescape")
        once = json.dumps(value, ensure_ascii=False)[1:-1]
        twice = json.dumps(once, ensure_ascii=False)[1:-1]  # JSON in JSON
        spellings |= {value, once, twice, raw.hex(), raw.hex().upper()}
        for encoded in (
            quote(value, errors="surrogateescape"),
            quote(raw, safe=""),
            quote_plus(raw),
        ):
            lower = re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), encoded)
            spellings |= {encoded, lower}
        spellings |= {_base64_part(raw, offset) for offset in range(3)}
    return tuple(sorted(spellings, key=len, reverse=True))  # the longest first: others are in it


def _base64_part(raw: bytes, offset: int) -> str:
    """Return the characters that base64 has for these bytes after `offset` other bytes.

    Without the first and last character, if other bytes have a share in them.
    """
    encoded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
    aligned = (offset + len(raw)) % 3 == 0
    return encoded[-(-offset * 4 // 3) : None if aligned else -1]


# --- The formats of keys. The key of a format is a word that every such secret contains, in lower
# case. Its pattern is matched at the word, or up to `LOOKBEHIND` bytes before it. The last group
# is hidden, or the whole match.

# No letter, digit or underscore before it, except the end of an escape: "\n" or "%3D".
EDGE = r"(?:(?<![A-Za-z0-9_])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
END = r"(?![A-Za-z0-9_])"
DIGIT = r"(?=[A-Za-z_-]*[0-9])"  # a word has none
TAIL = r"[A-Za-z0-9_-]"
HALF = r"[A-Za-z0-9/+]"

# Keys by the prefixes that providers publish so that they can be found. Each stands between word
# borders and has a digit: `mark_test_complete` and `ghp_xxxxxxxxxxxxxxxxxxxx` are none.
KEYS = {
    # models and their tools
    # not `sk-ecdsa-sha2-nistp256`: a key has a known prefix, a long part, or capitals
    "sk-": r"sk-(?=(?:ant|proj|or)-|[A-Za-z0-9_-]*?(?:[A-Z]|[A-Za-z0-9_]{12}))[A-Za-z0-9_-]{12,}",
    "sess-": rf"sess-{DIGIT}[A-Za-z0-9]{{32,}}",
    "aiza": rf"AIza{TAIL}{{20,}}",  # Google
    "ya29.": rf"ya29\.{TAIL}{{16,}}",
    "gocspx-": rf"GOCSPX-{TAIL}{{16,}}",
    "1//0": rf"1//0{TAIL}{{30,}}",
    "gsk_": r"gsk_[A-Za-z0-9]{16,}",
    "xai-": r"xai-[A-Za-z0-9]{16,}",
    "hf_": r"hf_[A-Za-z0-9]{16,}",
    "api_org_": r"api_org_[A-Za-z0-9]{16,}",
    "r8_": r"r8_[A-Za-z0-9]{16,}",
    "pplx-": r"pplx-[A-Za-z0-9]{16,}",
    "fw_": r"fw_[A-Za-z0-9]{16,}",
    "nvapi-": rf"nvapi-{TAIL}{{16,}}",
    "tgp_v1_": rf"tgp_v1_{TAIL}{{16,}}",
    "csk-": r"csk-[A-Za-z0-9]{16,}",  # Cerebras
    "pa-": rf"pa-{DIGIT}{TAIL}{{40,}}",  # Voyage
    "jina_": r"jina_[A-Za-z0-9_-]{32,}",
    "pcsk_": r"pcsk_[A-Za-z0-9_]{24,}",  # Pinecone
    "esecret_": r"esecret_[A-Za-z0-9]{16,}",
    "lsv2_": r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{16,}",
    "tvly-": r"tvly-[A-Za-z0-9-]{16,}",
    "fc-": r"fc-[0-9a-f]{32}",  # Firecrawl
    "apify_api_": r"apify_api_[A-Za-z0-9]{16,}",
    "bb_live_": rf"bb_live_{TAIL}{{16,}}",
    "e2b_": r"e2b_[A-Za-z0-9]{16,}",
    "as-": rf"as-{DIGIT}[A-Za-z0-9]{{22}}(?![A-Za-z0-9_-])",  # Modal
    "ak-": rf"ak-{DIGIT}[A-Za-z0-9]{{22}}(?![A-Za-z0-9_-])",
    "key_": r"key_[0-9a-f]{64}",  # Cursor
    # clouds
    **{  # AWS, with the secret half of a pair
        kind.lower(): rf"{kind}[0-9A-Z]{{16}}(?:[,:;\s]{{1,3}}{HALF}{{40}}(?!{HALF}))?"
        for kind in ("AKIA", "ASIA")
    },
    "absk": r"ABSK[0-9A-Za-z+/=]{20,}",
    "bedrock-api-key-": r"bedrock-api-key-[0-9A-Za-z+/=_-]{16,}",
    "q~": r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",  # Entra
    "ltai": rf"LTAI{DIGIT}[A-Za-z0-9]{{12,}}",  # Alibaba
    "akid": rf"AKID{DIGIT}[A-Za-z0-9]{{28,}}",  # Tencent
    **{f"do{kind}_v1_": rf"do{kind}_v1_[a-f0-9]{{32,}}" for kind in "opr"},  # DigitalOcean
    "hrku-": rf"HRKU-AA{TAIL}{{30,}}",
    "fm2_": r"fm2_[A-Za-z0-9+/=_-]{30,}",  # Fly
    "fm1_": r"fm1_[A-Za-z0-9+/=_-]{30,}",
    "fo1_": rf"fo1_{TAIL}{{30,}}",
    "dapi": r"dapi[0-9a-f]{32}(?:-[0-9])?",  # Databricks
    "dose": r"dose[0-9a-f]{32}(?:-[0-9])?",
    "v1.0-": r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}",  # Cloudflare
    "nfp_": r"nfp_[A-Za-z0-9]{30,}",  # Netlify
    # code and packages
    "ghp_": r"ghp_[A-Za-z0-9]{16,}",
    "gho_": r"gho_[A-Za-z0-9]{16,}",
    "ghu_": r"ghu_[A-Za-z0-9]{16,}",
    "ghs_": r"ghs_[A-Za-z0-9]{16,}",
    "ghr_": r"ghr_[A-Za-z0-9]{16,}",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{16,}",
    **{  # GitLab
        f"{kind}-": rf"{kind}-[A-Za-z0-9_.-]{{12,}}"
        for kind in (
            *("glpat", "gldt", "glrt", "glcbt", "glft", "gloas", "glagent", "glptt", "glsoat"),
            *("glimt", "glrtr", "glffct"),
        )
    },
    "gr1348941": rf"GR1348941{TAIL}{{16,}}",
    "atatt3": r"ATATT3[A-Za-z0-9_=-]{16,}",  # Atlassian
    "atctt3": r"ATCTT3[A-Za-z0-9_=-]{16,}",
    "atbb": r"ATBB[A-Za-z0-9]{24,}",
    "npm_": r"npm_[A-Za-z0-9]{20,}",
    "pypi-": rf"pypi-{TAIL}{{16,}}",
    "rubygems_": r"rubygems_[0-9A-Za-z]{16,}",
    "clojars_": r"CLOJARS_[0-9a-z]{40,}",
    "dckr_": rf"dckr_(?:pat|oat)_{TAIL}{{16,}}",
    "akcp": r"AKCp[0-9A-Za-z]{60,}",  # Artifactory
    "cmvmdgtu": r"cmVmdGtu[0-9A-Za-z]{50,}",
    "bkua_": r"bkua_[a-z0-9]{30,}",  # Buildkite
    "sgp_": r"sgp_[a-fA-F0-9_]{32,}",  # Sourcegraph
    "figd_": rf"figd_{TAIL}{{30,}}",
    "pat.": rf"pat\.{TAIL}{{22}}\.[0-9a-f]{{24}}\.[A-Za-z0-9]{{20}}",  # Harness
    "pul-": r"pul-[0-9a-f]{40}",  # Pulumi
    ".atlasv1.": rf"[A-Za-z0-9]{{14}}\.atlasv1\.{TAIL}{{50,}}",  # Terraform
    # secret stores and monitoring
    "hvs.": rf"hvs\.{TAIL}{{16,}}",  # Vault
    "hvb.": rf"hvb\.{TAIL}{{16,}}",
    "hvr.": rf"hvr\.{TAIL}{{16,}}",
    "dp.": r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{16,}",
    "ops_eyj": rf"ops_eyJ{TAIL}{{60,}}",  # 1Password
    "age-secret-key-": r"AGE-SECRET-KEY-1[0-9A-Z]{16,}",
    "tskey-": r"tskey-[a-z]+-[A-Za-z0-9-]{12,}",  # Tailscale
    "sntry": r"sntry[su]_[A-Za-z0-9_=+/]{16,}",
    "phc_": r"phc_[A-Za-z0-9]{16,}",  # PostHog
    "phx_": r"phx_[A-Za-z0-9]{16,}",
    "glsa_": r"glsa_[A-Za-z0-9_]{16,}",  # Grafana
    "glc_": r"glc_[A-Za-z0-9+/=]{30,}",
    "eyjrijoi": r"eyJrIjoi[A-Za-z0-9]{40,}={0,2}",
    "nrak-": r"NRAK-[A-Z0-9]{16,}",  # New Relic
    "dt0c01.": r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}",  # Dynatrace
    "pscale_": r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{16,}",
    "sbp_": r"sbp_[A-Za-z0-9]{16,}",  # Supabase
    "sb_secret_": rf"sb_secret_{TAIL}{{16,}}",
    # messages and payments
    "xox": r"xox[abcdeoprs](?:-|\.xox[bp]-)[A-Za-z0-9%-]{8,}",  # Slack
    "xapp-": r"xapp-[A-Za-z0-9-]{8,}",
    ":aa": r"[0-9]{8,10}(:AA[A-Za-z0-9_-]{30,36})",  # Telegram
    **{f"sk{digit}": r"SK[0-9a-f]{32}" for digit in "0123456789abcdef"},  # Twilio
    "sg.": rf"SG\.{TAIL}{{12,}}\.{TAIL}{{12,}}",  # SendGrid
    "key-": r"key-[0-9a-f]{32}",  # Mailgun
    **{f"-us{digit}": r"[0-9a-f]{32}-us[0-9]{1,2}\b" for digit in range(1, 10)},  # Mailchimp
    "k_live_": r"[sr]k_live_[0-9A-Za-z]{8,}",  # Stripe
    "k_test_": r"[sr]k_test_[0-9A-Za-z]{8,}",
    "whsec_": r"whsec_[0-9A-Za-z+/=]{12,}",
    "sq0": rf"sq0[a-z]{{3}}-{TAIL}{{20,}}",  # Square
    "eaaa": r"EAAA(?!A)[A-Za-z0-9_-]{60}(?![A-Za-z0-9_-])",
    "shp": r"shp(?:at|ca|pa|ss)_[0-9A-Za-z]{16,}",  # Shopify
    "eaacedeose0cba": r"EAACEdEose0cBA[0-9A-Za-z]{16,}",  # Facebook
    "duffel_": rf"duffel_(?:test|live)_{TAIL}{{30,}}",
    "ezak": r"EZAK[A-Za-z0-9]{40,}",  # EasyPost
    "eztk": r"EZTK[A-Za-z0-9]{40,}",
    "lin_": r"lin_(?:api|oauth)_[A-Za-z0-9]{16,}",  # Linear
    "ntn_": r"ntn_[A-Za-z0-9]{16,}",  # Notion
    "secret_": r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])",
    "pmak-": r"PMAK-[A-Za-z0-9-]{16,}",  # Postman
    # of any service: a web token, and "-----BEGIN " in base64, but not of a certificate
    "eyj": rf"eyJ{TAIL}{{8,}}\.(?:eyJ{TAIL}{{6,}}|{TAIL}*\.{TAIL}{{8,}}\.{TAIL}+)\.{TAIL}{{6,}}",
    "ls0tls1crudjti": r"LS0tLS1CRUdJTi(?!BD)[A-Za-z0-9+/=_-]{20,}",
}

# Secrets by what is around them. The last group is hidden, or the whole match.
_PEM_LINE = r"(?:\s|\\+[nr])"
_KEY_BLOCK = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    rf"(?={_PEM_LINE}*[A-Za-z0-9+/]{{4}})"  # the line alone is no key
    rf"(?:[A-Za-z0-9+/=:,.]|{_PEM_LINE}|-(?!----))*"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
)
PLACES = {
    "private key-----": _KEY_BLOCK,
    "private key block-----": _KEY_BLOCK,
    "hooks.slack.com/": r"hooks\.slack\.com/[a-z]+/([A-Za-z0-9/_-]{8,})",
    "/webhooks/": rf"/webhooks/[0-9]{{10,}}/({TAIL}{{20,}})",  # Discord
    "/webhookb2/": r"/webhookb2/([A-Za-z0-9@/_-]{16,})",  # Teams
    # a password in a URL, but not the second host of `//one:80,user:x@two`
    "://": rf"://(?:[^\s:/@\"'\\<>\[\]]*:(?![0-9]+,)|(?<=https://)(?={DIGIT}{TAIL}{{20,}}@))([^\s/\"'\\`<>]+)@",
    "bearer": r"(?i:bearer)[ \t]+(?=\S*[0-9]|[A-Za-z]{20})([A-Za-z0-9._~+/=-]{8,})",
    "signature=": r"(?i:signature)=(?=[A-Za-z%+/=_~-]*[0-9])([A-Za-z0-9%+/=_~-]{16,})",
    "response=\\": r"(?i:response)=\\*\"([0-9a-f]{32,})",  # a digest of a password
    'response="': r"(?i:response)=\"([0-9a-f]{32,})",
    # command lines
    **{
        f"{option} ": rf"(?<=\s){option} \\*[\"']?[A-Za-z0-9@._-]+:(?![0-9]+\b)([^\s\"'\\]{{3,}})"
        for option in ("-u", "--user", "--proxy-user")
    },
    "sshpass": r"sshpass\s+-p\s*\\*[\"']?([^\s\"'\\]{3,})",
    "docker login": r"docker login\b[^\n\\|;&]{0,200}?\s-p[ =]?\\*[\"']?([^\s\"'\\]{3,})",
    "mysql": r"mysql(?:dump|admin)?\b[^\n\\|;&]{0,200}?\s-p([^\s\"'\\]{4,})",
    "machine ": r"machine\s+\S+\s+login\s+\S+\s+password\s+([^\s\"'\\]{3,})",  # .netrc
}
LOOKBEHIND = {
    "k_live_": 1,
    "k_test_": 1,
    ":aa": 10,
    "q~": 4,
    ".atlasv1.": 14,
    "private key-----": 40,
    "private key block-----": 40,
    **{f"-us{digit}": 32 for digit in range(1, 10)},
}
