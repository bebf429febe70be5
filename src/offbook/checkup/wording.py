"""What a text says of a failure, by its words, for answers and results that no model has written.

The words are those of a few languages. A text without any of them is not judged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from offbook.exchange.tool_effects import split_words

if TYPE_CHECKING:
    from collections.abc import Iterable

_FAILURE = re.compile(
    r"\w(Error|Exception|Timeout)\b"
    r"|(?i:\b(errors?|exceptions?|faults?|fail(s|ed|ure|ures|ing)?|unable|cannot|can'?t|can not"
    r"|could ?n'?t|could not|did ?n'?t|does ?n'?t|is ?n'?t|was ?n'?t|wo ?n'?t|sorry|apolog\w+"
    r"|unfortunately|unavailable|overloaded|refus\w+|declin\w+|denied|reject\w+|invalid|malformed"
    r"|unknown|unsupported|problems?|trouble|issues?|wrong|timed? ?out|limit(s|ed)?|max(imum)?"
    r"|exceed\w*|quota|too (long|large|many|often)|try (it )?again|retry|retries|later|stopped"
    r"|g(a|i)ve up|giving up|abort\w*|cancel\w*|interrupt\w*|incomplete|partial\w*|truncat\w+"
    r"|(cut|broke) off|was cut|lost|missing|not|never|(status|http|code)\W*[45]\d\d"
    r"|(no|without an?|without any) (answer|connection|model|reply|response|result|such)"
    r"|fehler|fehlgeschlagen|gescheitert|leider|nicht|kein\w*|abgebrochen|ungültig|unbekannt"
    r"|erreur|échec|échoué|désolé|impossible|indisponible|inconnu"
    r"|fallo|falló|fallido|siento|imposible|desconocid[ao])\b)"
    r"|错误|失败|无法|抱歉|エラー|失敗|できません"
)
# A field of an error that is empty, and phrases that deny a failure.
_NO_FAILURE = re.compile(
    r"""(?i:["']?\b(errors?|exception|refusal|warnings?)["']?\s*[:=]\s*(null|none|false|""|''|\[\]|0)"""
    r"""|\b(no|without( any)?|zero|0)\s+(errors?|problems?|issues?|trouble|failures?)\b"""
    r"""|\bno\s+longer\b|\bnot\s+only\b)"""
)
_SUCCESS = re.compile(
    r"(?i:\b(done|ok|okay|success\w*|succeeded|completed?|finished|all set|fertig|erledigt"
    r"|erfolgreich|terminé|réussi|listo|hecho|éxito)\b)|[✓✔✅]|成功|完了"
)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def reports_failure(text: str) -> bool:
    """Return whether a text says that something failed."""
    return bool(_FAILURE.search(_NO_FAILURE.sub(" ", text)))


def claims_success(text: str, success: str = "") -> bool:
    """Return whether a text says that all is well: it is `success`, or words of that say so."""
    words = _read_words(text)
    if words and words == _read_words(success):
        return True
    return bool(_SUCCESS.search(text)) and not reports_failure(text)


def names_effect(text: str, tools: Iterable[str]) -> bool:
    """Return whether a text says that one of these tools did its work: "refunded" of `refund`."""
    verbs = {word for tool in tools for word in split_words(tool)}
    done = {f"{verb}{end}" for verb in verbs for end in ("ed", "d", f"{verb[-1]}ed")}
    return not done.isdisjoint(_read_words(text)) and not reports_failure(text)


def read_answer(answer: object) -> str:
    """Return the text of an answer that can be compared; of an object without one, an empty one."""
    text = answer if isinstance(answer, str) else repr(answer)
    return "" if _ADDRESS.search(text) and not isinstance(answer, str) else text


def _read_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
