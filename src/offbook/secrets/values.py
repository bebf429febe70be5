"""Whether a value next to the name of a secret is one: the judges of `names` and `key_formats`.

A value may also be a type, a variable, a placeholder (`your-api-key`), the name of a variable or a
word of a message. `is_plain` and `looks_random` decide, so that programs come out of a cassette
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

from offbook.secrets import SECRET_NAMES, is_secret_name
from offbook.secrets.key_formats import compile_pattern

MIN_VALUE_LENGTH = 4
MIN_RANDOM_LENGTH = 6
MIN_KEY_LENGTH = 12
MIN_SCRAMBLED_LENGTH = 16

# The words of placeholders and of names of variables: `your-api-key`, `OPENAI_API_KEY`.
_NOUNS = frozenset(
    b"key keys apikey token tokens secret secrets password passwords passwd passphrase pwd auth "
    b"authorization credential credentials bearer jwt cookie header publickey privatekey "
    # the same word in forms of other languages
    b"passwort senha salasana parola parole wachtwoord passord adgangskode heslo geslo contrasenya "
    b"lozinka passe sandi".split()
)
_SUFFIXES = (b"password", b"secret", b"token", b"apikey")  # mypassword
_FILLERS = frozenset(
    b"a an the my your some me change test tests testing fake dummy example sample placeholder "
    b"changeme foo "
    b"bar baz api app user name client server access refresh private public not set none null here "
    b"value string xxx xxxx todo demo default redacted github pat real new old env id".split()
)
# What follows such a name in code, in schemas and in prose.
_CODE_WORDS = frozenset(
    b"str string bytes int integer float number bool boolean any object none null nil true false "
    b"undefined unknown void never optional union list dict tuple set callable awaitable secretstr "
    b"annotated literal field text char varchar self cls this pass required default value values "
    b"redacted unavailable enable enabled disable disabled always auto guest local remote basic "
    b"digest inherit "
    b"must should cannot can is was not may will incorrect invalid wrong missing empty hidden "
    b"expired reserved unreserved".split()
)
_PLACEHOLDER = (
    rb"(?s)`?(?:[A-Za-z]+ )?(?:\$\{.*|\$\(.*|\$[A-Za-z_][A-Za-z0-9_]*|\{\{.*|\{[^}]*\}?|"
    rb"<[^<>]*>?|%\(\w+\)?s?|%[sr].{0,2}|(?:[A-Za-z0-9]+[-_]){0,3}[*xX.\xe2\x80\xa6]{3,}"
    rb"|\[[A-Z_ ]+\].*)`?"
)
_WORDS = rb"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+"
_IDENTIFIER = rb"[A-Za-z0-9_ .:/<>\[\]()-]+\??"
_EXPRESSION = rb"(?s)[A-Za-z_][\w.]*[\[(<].*|[A-Za-z_]{1,40}(?:\.[A-Za-z_]{1,40}[0-9]?)+"
_ELIDED = rb"(?:\.\.\.|\xe2\x80\xa6)\Z|<[A-Za-z][\w .-]*>|\$\{|\{[\w.]*[}(\[!:]|%[sd]\b|%\(|%key:"
# Words of a message or a description, and words in letters that are not of ASCII.
_PROSE = (
    rb"(?i)(?:\A|\s)(?:the|an?|is|are|was|for|of|to|your|my|and|or|not|no|in|with|must|be|please|from|"
    rb"this|that|on|by|can|cannot|will|has|have|invalid|failed|error|enter|password|token)"
    rb"(?:[\s.,:!?].*\s|\s.*|[.,:!?]|\Z)|\A[^0-9!-/]*(?:[\xc3-\xf4][\x80-\xbf]|\\+u[0-9a-f]{4})"
    rb"(?:[^0-9!-/]|\\+u[0-9a-f]{4})*\Z"
)
_MIXED = rb"(?=.*[a-z])(?=.*[A-Z])(?:.*[0-9].*[a-zA-Z].*[0-9]|(?=.*[0-9]).{32})"
_SHORT_WORD = rb"[A-Za-z]{,4}"
_CAPITAL = rb"[A-Z]"
_BASE64 = rb"[A-Za-z0-9+/]{32,}={0,2}|[A-Za-z0-9+/]{20,}={1,2}"
_CAPITALS_WITH_DIGITS = rb"(?=.*[0-9][A-Z])[A-Z0-9]{16,}"
_LETTERS_AND_DIGITS = rb"[A-Za-z0-9+/=]+"
_PIECES = rb"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[+/=]"
# How often the second letter follows the first one in English words and in names of programs, from
# 0 to 9, one row for each first letter: the logarithm of its share, 5 where all were alike.
_PAIRS = """
15651250503757050768432230 74437321630833630663600040 71427207506620810537500030
64349330810423620563520020 52674431200557242876142510 62337710800602700645601040
60318256600536630752600021 80038002700432710546400040 54655450001558740466050204
70228200503020742072825020 63349342701515442274404030 71248110801712730155420060
84228000701351770053500010 61666481613324520277340010 34551340304668550755645200
71227114601701750856501050 30040000000502220450923000 71448230703354730465431040
50628216703433561168612040 71428216800421630765401051 56545340500668360767000100
81309100800121500021000000 80138226702506610662102100 63657403700351380148310531
54546340600566580376024033 70029202700222610043302034
""".split()  # noqa: SIM905 - a table
# Of 1,000 names of programs 3 have a mean below it, of 1,000 random texts 2 one above it. Shorter
# texts vary more; those with many changes of case are names rarely.
MAX_PAIR_SCORE = 5.3
MAX_SHORT_SCORE = 4.6
MAX_DENSE_SCORE = 6.2
MIN_PAIRS = 6
_MEMBER = rb"(?:self|cls|this|[a-z]\w*)\.[\w.]+[)}\]]*"  # `self.TEST_TOKEN}`
_RATE = rb"[0-9]+/[a-z0-9/,]+|[A-Z]{2,9}=[\w-]+"  # `5/m/user`, and a tag of a disk: `TYPE=ext4`
_PATH = rb"(?:~|\.{0,2})/[a-z]{2,10}[/.]"
_SEPARATORS = rb"[-_.]"
_BLANKS = frozenset(b"xX*._-")  # ghp_xxxxxxxxxxxx
_COLOR = rb"#[0-9a-fA-F]{3,8}|# .*"
_DIGIT_RUNS = rb"[0-9]+"
_INNER_DIGIT = rb"[0-9][a-z]"
_PUNCTUATION = rb"[!^*~?]|[a-zA-Z0-9](?:[#@]|%(?![0-9A-Fa-f]{2}))[a-zA-Z0-9]|[0-9][#$%&@]\Z"
_COOKIE_VALUE = rb"=(?:s%3A)?([^\s;\"'\\]{6,})"
# Dates, numbers with units, versions, addresses, calls, paths: what else follows such a name.
_CODE = (
    rb"[0-9][0-9.,:/+-]*[A-Za-z%]{0,3}|[0-9]{4}-[0-9]{2}-[0-9]{2}T.*|v?[0-9]+(?:\.[0-9a-z]+)+.*"
    rb"|[A-Za-z_][\w.]*\.[A-Za-z_]+|[\w./-]+@[\w.-]+|[A-Za-z_]\w*(?:\.\w+)+:[A-Za-z_]\w*|[\w./-]*/[\w./-]*\.[a-z]{1,5}"
    rb"|[A-Z0-9_]+_[A-Z0-9_]+"
    rb"|\*{1,2}[A-Za-z_.]*|0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|[a-z]+(?:[-_][a-z]+)*[-_]?[0-9]{0,4}"
)
# Words that have a digit: they are parts of names.
_TERMS = (
    rb"(?i)(?<![A-Za-z])(?:sha|md|utf|iso|base|aes|rsa|hs|rs|es|ps|ed|int|uint|float|ipv|http|oauth|tls|ssl|py|"
    rb"python|b|s|x|v|p|u|i|h|r|k|ec|win|arm|x86|amd|log|gpt|o|t|llama|claude)_?[0-9]{1,5}(?![0-9])"
)
_DIGIT = rb"[0-9]"
_NO_DIGIT = rb"[^0-9]"


# A conversation is read again with each of its requests: the last verdicts are remembered.
_remember = lru_cache(maxsize=4096)
MAX_REMEMBERED_LENGTH = 500


def has_digit(value: bytes) -> bool:
    """Return whether there is a digit: there is one in nearly every key, and in hardly a word."""
    return compile_pattern(_DIGIT).search(value) is not None


def _has_free_digit(value: bytes) -> bool:
    """Return whether there is a digit that is not a part of a word, as in `sha256`."""
    return has_digit(value) and (
        has_digit(compile_pattern(_TERMS).sub(b"", value))
        or compile_pattern(_PUNCTUATION).search(value) is not None
    )


def is_placeholder(value: bytes | str) -> bool:
    """Return whether the value is a placeholder: `${TOKEN}`, `<your key>`, `{{ key }}`, `***`."""
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return compile_pattern(_PLACEHOLDER).fullmatch(raw) is not None


def is_plain(value: bytes) -> bool:
    """Return whether a value is obviously not a secret: a placeholder, a name, a type."""
    judge = _is_plain if len(value) <= MAX_REMEMBERED_LENGTH else _is_plain.__wrapped__
    return judge(value)


@_remember
def _is_plain(value: bytes) -> bool:
    if (
        is_placeholder(value)
        or compile_pattern(_SHORT_WORD).fullmatch(value)
        or len(value.decode(errors="replace")) < MIN_VALUE_LENGTH
    ):
        return True
    if compile_pattern(_EXPRESSION).fullmatch(value) or compile_pattern(_ELIDED).search(value):
        return True
    if compile_pattern(_PROSE).search(value) or compile_pattern(_PATH).match(value):
        return True
    if compile_pattern(_RATE).fullmatch(value):
        return True
    if not compile_pattern(_IDENTIFIER).fullmatch(value):
        return False
    words = [word.lower() for word in compile_pattern(_WORDS).findall(value)]
    if not words or (words[0] in _CODE_WORDS and len(words) == 1):
        return True
    if not (_has_free_digit(value) or _is_scrambled(value)) and (
        any(word in _NOUNS or word.endswith(_SUFFIXES) for word in words)
        or (b"api" in words and len(words) > 1)
    ):
        return True
    return all(word in _NOUNS or word in _FILLERS or word.isdigit() for word in words)


def is_secret_value(value: bytes) -> bool:
    """Return whether the value after the name of a secret is one: anything that is not plain."""
    return not is_plain(value)


def looks_random(value: bytes) -> bool:
    """Return whether a value looks like a key or a good password, whatever its name."""
    judge = _looks_random if len(value) <= MAX_REMEMBERED_LENGTH else _looks_random.__wrapped__
    return judge(value)


@_remember
def _looks_random(value: bytes) -> bool:
    return (
        len(value) >= MIN_RANDOM_LENGTH
        and (_has_free_digit(value) or _is_scrambled(value))
        and compile_pattern(_NO_DIGIT).search(value) is not None
        and not value.startswith((b"~/", b"./", b"../", b"=", b"["))
        and (not value.startswith(b"/") or _is_base64(value))
        and not compile_pattern(_COLOR).fullmatch(value)
        and b"://" not in value
        and not _is_name_with_digits(value)
        and not is_plain(value)
    )


def _is_scrambled(value: bytes) -> bool:
    """Return whether a value mixes capitals, small letters and digits as no name does."""
    if len(value) < MIN_KEY_LENGTH or not compile_pattern(_LETTERS_AND_DIGITS).fullmatch(value):
        return False
    if b"/" in value and value.islower():  # sftp/scp/ssh
        return False
    pieces = compile_pattern(_PIECES).findall(value)
    return 5 * len(value) <= 12 * len(pieces) or _is_gibberish(value, pieces)


def _is_gibberish(value: bytes, pieces: list[bytes]) -> bool:
    """Return whether a value has pairs of letters that words do not have."""
    scores = [
        int(_PAIRS[first - 97][second - 97])
        for piece in pieces
        if piece.isalpha()
        for first, second in pairwise(piece.lower())
    ]
    if len(scores) < MIN_PAIRS or len({*value.lower()}) <= MIN_RANDOM_LENGTH:
        return False
    dense = len(value) < 3 * len(pieces)
    long = len(value) >= MIN_SCRAMBLED_LENGTH
    limit = MAX_DENSE_SCORE if dense else MAX_PAIR_SCORE if long else MAX_SHORT_SCORE
    return sum(scores) < limit * len(scores)


def _is_base64(value: bytes) -> bool:
    """Return whether a value that begins as a path does is base64: it has many capitals."""
    if compile_pattern(_BASE64).fullmatch(value) is None:
        return False
    capitals = len(compile_pattern(_CAPITAL).findall(value))
    return len(value) < 5 * capitals < 4 * len(value) and (is_mixed(value) or _is_scrambled(value))


def is_mixed(value: bytes) -> bool:
    """Return whether a value mixes small letters, capitals and digits."""
    return compile_pattern(_MIXED).match(value) is not None


def is_whole_key(length: int, value: bytes) -> bool:
    """Return whether a text with the prefix of a key is one, not `ghp_xxxx` or a name."""
    whole = 0 < length <= len(value)
    body = max(compile_pattern(_SEPARATORS).split(value), key=len)
    return (has_digit(value) or whole or _is_scrambled(body)) and bool(
        {*value[-MIN_KEY_LENGTH:]} - _BLANKS
    )


def is_unlike_code(value: bytes) -> bool:
    """Return whether a value that is not quoted can be no variable, date, path or number.

    Digits of names are at the end of a word (`token2`), or belong to it (`sha256`).
    """
    judge = _is_unlike_code if len(value) <= MAX_REMEMBERED_LENGTH else _is_unlike_code.__wrapped__
    return judge(value)


@_remember
def _is_unlike_code(value: bytes) -> bool:
    if not looks_random(value):
        return False
    if _is_scrambled(value):
        return True
    if compile_pattern(_CODE).fullmatch(value):
        return False
    rest = compile_pattern(_TERMS).sub(b"", value)
    if compile_pattern(_PUNCTUATION).search(value):
        return has_digit(value)
    return (
        len(compile_pattern(_DIGIT_RUNS).findall(rest)) > 2  # noqa: PLR2004 - names have two
        or compile_pattern(_INNER_DIGIT).search(rest) is not None
        or compile_pattern(_CAPITALS_WITH_DIGITS).fullmatch(value) is not None
        or (len(rest) >= MIN_KEY_LENGTH and is_mixed(rest))
    )


def has_random_cookie(value: bytes) -> bool:
    """Return whether the cookies of a header have a value that looks like a key."""
    return any(map(looks_random, compile_pattern(_COOKIE_VALUE).findall(value)))


def _is_name_with_digits(value: bytes) -> bool:
    """Return whether a value is a variable or a type that has a digit: `s3_credentials`."""
    if _is_scrambled(value):  # a key contains such a word by chance: `…QaPwdAUBo48aB`
        return False
    words = compile_pattern(_WORDS).findall(value)
    return re.fullmatch(rb"[A-Za-z_][\w.]*", value) is not None and any(
        word.lower() in _NOUNS or word.lower() + b"s" in _NOUNS for word in words
    )


def is_credential(value: bytes) -> bool:
    """Return whether the value of a header is one: `Bearer …`, or a key alone."""
    key = value.rpartition(b" ")[2]
    # base64 has no digit by chance
    mixed = key.lower() != key and key.upper() != key and len(key) >= 2 * MIN_VALUE_LENGTH
    if is_plain(key) or compile_pattern(_MEMBER).fullmatch(key) or key[:2].lower() == b"0x":
        return False
    return looks_random(key) or mixed


def is_secret_field(name: str, value: str) -> bool:
    """Return whether the value of a JSON field is a secret, judged by its name and its form."""
    if not value or not is_secret_name(name):
        return False
    if any(known in name.lower().replace("-", "_") for known in SECRET_NAMES):
        return not is_placeholder(value)
    raw = value.encode("utf-8", "surrogatepass")
    return looks_random(raw) or is_credential(raw)


# By name: a rule names its judge, and this module is imported when a rule first matches.
JUDGES: dict[str, Callable[[bytes], bool]] = {
    judge.__name__: judge
    for judge in (is_secret_value, is_unlike_code, looks_random, is_credential, has_random_cookie)
}
