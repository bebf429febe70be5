"""The seals on thoughts: the provider's are kept, ours can be opened."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64

from offbook.determinism.ids import stable
from offbook.exchange.messages import Thinking

_MAGIC = b"offbook\0"


def seal_thought(text: str) -> str:
    """Our seal on a thought, with the thought in it."""
    said = text.encode()
    return b64encode(_MAGIC + stable("", text, length=8).encode() + said).decode()


def unseal_thought(text: str, signature: str) -> Thinking | None:
    """The thought that was sealed; None if it was altered. Other seals cannot be opened."""
    if not signature.startswith(_SEALED):
        return Thinking(text, signature)
    try:
        opened = b64decode(signature, validate=True)[len(_MAGIC) :]
        sealed = opened[8:].decode()
    except (NotBase64, UnicodeDecodeError):
        return None
    if opened[:8] != stable("", sealed, length=8).encode() or text not in {sealed, ""}:
        return None
    return Thinking(sealed)


_SEALED = b64encode(_MAGIC)[:10].decode()
