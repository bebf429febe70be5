"""What clients store at a provider, for one run: files, vector stores and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.determinism.run_context import stable_id
from offbook.errors import ModelError
from offbook.exchange.messages import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator


class StoredObject(msgspec.Struct):
    """An object as its provider describes it, and the bytes of a file."""

    description: JSON
    content: bytes = b""


class ObjectStore:
    """The objects of one run by kind and id, in the order in which they were made."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, StoredObject]] = {}
        self._count = 0

    def add(self, kind: str, prefix: str, description: JSON, content: bytes = b"") -> JSON:
        """Store an object under a new id; return its description with the id first."""
        self._count += 1
        object_id = stable_id(prefix, kind, str(self._count))
        described = {"id": object_id, **description}
        self._objects.setdefault(kind, {})[object_id] = StoredObject(described, content)
        return described

    def put(self, kind: str, object_id: str, description: JSON) -> JSON:
        """Store an object under an id that it has; return its description."""
        self._objects.setdefault(kind, {})[object_id] = StoredObject(description)
        return description

    def get(self, kind: str, object_id: str) -> StoredObject:
        """Return an object; raise the error of a provider that does not have it."""
        found = self._objects.get(kind, {}).get(object_id)
        if found is None:
            raise ModelError(f"No such {kind}: {object_id}", status=404, details={"code": ""})
        return found

    def remove(self, kind: str, object_id: str) -> None:
        """Delete an object."""
        self.get(kind, object_id)
        del self._objects[kind][object_id]

    def descriptions(self, kind: str) -> list[JSON]:
        """Return the objects of a kind, the newest first."""
        return [stored.description for stored in reversed(self._objects.get(kind, {}).values())]


class FormField(msgspec.Struct, frozen=True):
    """A field of a form: a value, or a file with its name and type."""

    name: str
    content: bytes
    filename: str = ""
    content_type: str = ""


def parse_form(content_type: str, body: bytes) -> Iterator[FormField]:
    """Yield the fields of a form (multipart/form-data)."""
    from email.parser import BytesParser  # late: few requests are forms

    head = f"content-type: {content_type}\r\n\r\n".encode()
    for part in BytesParser().parsebytes(head + body).walk():
        name = part.get_param("name", header="content-disposition")
        raw = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(raw, bytes):
            filename = part.get_filename() or ""
            yield FormField(name.removesuffix("[]"), raw, filename, part.get_content_type())
