"""Which artifacts fit into a context: chunks, ranked, without duplicates, up to a budget."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import msgspec

BYTES_PER_TOKEN = 4
TIERED_KINDS = {"scanned", "enriched"}  # they show only artifacts with a tier
MIN_TERM = 3
TERM_WEIGHT, DENSITY_WEIGHT = 0.7, 0.3
DENSITY_CHARS = 400


class ContextArtifact(msgspec.Struct, frozen=True):
    """A text that a context may contain."""

    id: str
    kind: str = ""
    title: str | None = None
    text: str | None = None
    source: str | None = None
    created_at: str | None = None
    freshness: str | None = None
    priority: int | None = None
    estimated_tokens: int | None = None
    metadata: dict[str, Any] = {}

    @property
    def tier(self) -> str:
        """The tier that labels the artifact; empty without one."""
        return str(self.metadata.get("context_tier", ""))


class _Chunk(NamedTuple):
    artifact: ContextArtifact
    number: int
    text: str
    total: int = 1

    @property
    def id(self) -> str:
        """The artifact and a hash of the text: it stays the same in every run."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return f"{self.artifact.id}#{digest[:16]}"


class Selection(NamedTuple):
    """The artifacts of a context, and its text."""

    ids: list[str]
    dropped: list[str]
    text: str
    tokens: int


def count_tokens(text: str) -> int:
    """Return the estimated tokens of a text: four bytes each."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def select_artifacts(  # noqa: PLR0913 - the options of a mode
    artifacts: Sequence[ContextArtifact],
    *,
    objective: str,
    kind: str,
    budget: int,
    ids: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    strategy: str = "relevance",
    dedup: str = "chunked",
    chunk_tokens: int = 2000,
    overlap: float = 0.85,
) -> Selection:
    """Return the artifacts that a mode selects."""
    if kind == "cold" or budget == 0:
        return Selection([], sorted(artifact.id for artifact in artifacts), "", 0)
    chosen = [a for a in artifacts if _is_wanted(a, kind, ids, include, exclude)]
    chunks = [chunk for artifact in chosen for chunk in _split(artifact, chunk_tokens)]
    chunks = _without_duplicates(chunks, dedup, overlap)
    kept: list[_Chunk] = []
    used = 0
    for chunk in _rank(chunks, strategy, objective):
        # A chunk that does not fit is skipped: a smaller one may still fit.
        size = count_tokens(chunk.text)
        if used + size <= budget:
            kept.append(chunk)
            used += size
    selected = sorted({chunk.artifact.id for chunk in kept})
    dropped = sorted({artifact.id for artifact in chosen} - set(selected))
    parts = [_render(chunk) for chunk in kept]
    parts.append(
        f"<context_budget>\n<used_tokens>{used}</used_tokens>\n<budget_tokens>{budget}"
        f"</budget_tokens>\n<strategy>{strategy}</strategy>\n<dedup>{dedup}</dedup>\n"
        "</context_budget>"
    )
    text = "\n\n".join(parts)
    return Selection(selected, dropped, text, count_tokens(text))


def _is_wanted(
    artifact: ContextArtifact,
    kind: str,
    ids: Sequence[str],
    include: Sequence[str],
    exclude: Sequence[str],
) -> bool:
    labels = {artifact.kind, artifact.tier} - {""}
    if labels & set(exclude) or (ids and artifact.id not in ids):
        return False
    if include:
        return bool(labels & set(include))
    return bool(ids or artifact.tier) if kind in TIERED_KINDS else True


def _split(artifact: ContextArtifact, chunk_tokens: int) -> list[_Chunk]:
    text = artifact.text or ""
    if count_tokens(text) <= chunk_tokens:
        return [_Chunk(artifact, 0, text)]
    parts = [*_cut(text.encode(), max(1, chunk_tokens) * BYTES_PER_TOKEN)]
    return [_Chunk(artifact, number, part, len(parts)) for number, part in enumerate(parts)]


def _cut(raw: bytes, size: int) -> Iterator[str]:
    """Yield parts of at most this size, which is that of the longest character or more."""
    start = 0
    while start < len(raw):
        part = raw[start : start + size].decode(errors="ignore")  # without half a character
        yield part
        start += len(part.encode())


def _without_duplicates(chunks: Sequence[_Chunk], dedup: str, overlap: float) -> list[_Chunk]:
    if dedup == "none":
        return list(chunks)
    kept: list[_Chunk] = []
    seen: set[str] = set()
    words: list[set[str]] = []
    for chunk in chunks:
        normal = " ".join(chunk.text.split())
        own = set(normal.lower().split())
        if normal in seen:
            continue
        if dedup == "semantic" and any(
            len(own & other) / max(1, len(own | other)) >= overlap for other in words
        ):
            continue
        seen.add(normal)
        words.append(own)
        kept.append(chunk)
    return kept


def _rank(chunks: Sequence[_Chunk], strategy: str, objective: str) -> list[_Chunk]:
    if strategy == "recency":
        # Newest first; of equal times by id, so that the order is always the same.
        ordered = sorted(chunks, key=lambda chunk: (chunk.artifact.id, chunk.number))
        return sorted(ordered, key=lambda chunk: chunk.artifact.created_at or "", reverse=True)
    if strategy == "round_robin":
        return sorted(chunks, key=lambda chunk: (chunk.number, chunk.artifact.id))
    terms = {word for word in objective.lower().split() if len(word) >= MIN_TERM}

    def score(chunk: _Chunk) -> float:
        folded = chunk.text.lower()
        matched = sum(term in folded for term in terms)
        density = min(matched / (len(chunk.text) / DENSITY_CHARS + 1), 1.0)
        return TERM_WEIGHT * matched / max(1, len(terms)) + DENSITY_WEIGHT * density

    return sorted(chunks, key=lambda chunk: (-score(chunk), chunk.artifact.id, chunk.number))


def _render(chunk: _Chunk) -> str:
    """Return a chunk as a model sees it; the shape is that of the reports it is compared with."""
    artifact = chunk.artifact
    fields = {
        "title": artifact.title or f"{artifact.kind} {artifact.id}",
        "kind": artifact.kind,
        "source": artifact.source or "unknown",
        "chunk_id": chunk.id,
        "chunk_index": f"{chunk.number + 1} of {chunk.total}",
    }
    head = "\n".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    return f"<artifact>\n{head}\n<body>\n{chunk.text}\n</body>\n</artifact>"
