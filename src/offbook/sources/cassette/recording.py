"""Records: a source in front of another one, which keeps what was asked and what was answered.

    with Recording(Live(…), "tests/refund.yaml") as source:
        …

What is kept of a request is normalised; no secret is kept of either. Nothing is lost when the
process dies: each finished exchange is in the cassette's journal at once.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from offbook.determinism.clock import Clock, SystemClock
from offbook.errors import ModelError, UsageError
from offbook.exchange.messages import Message
from offbook.exchange.model import can_relay
from offbook.sources.cassette.editing import CassetteTitle
from offbook.sources.cassette.format import (
    ANY_HASH,
    MAIN_HAT,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    preview,
    response_from_error,
    response_from_reply,
    shift_chunks,
)
from offbook.sources.cassette.journal import Journal, load_cassette
from offbook.sources.cassette.maintenance import replace_interaction
from offbook.sources.cassette.normalize import (
    ConversationDigest,
    Normalizer,
    hide_roots,
    merge_rules,
    number_call_ids,
)
from offbook.sources.cassette.replay import Cassette, request_hat
from offbook.sources.side_requests import answer_prewarm
from offbook.trace.redaction import Redaction, RedactionRules, parse_redaction_rules

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource, Reply, Request


# --- Records: a source in front of another one, which keeps what was asked and what was answered.

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offbook.exchange.model import ModelSource, Reply, Request, Usage

    Price = Callable[[str, Usage], float | None]

MILLION = 1_000_000
PRECISE = 10


class RecordingSummary(msgspec.Struct, frozen=True):
    """What came of a recording."""

    cassette_path: str
    cassette_name: str
    interactions: int
    total_tokens: int
    cost_dollars: float | None
    duration_secs: float
    interrupted: bool = False


class Recording:
    """A source whose exchanges go to a cassette.

    A cassette that is there already is refused, unless it is to grow (`append`) or to be begun
    anew (`replace`). `redactions` are kept in the cassette; `roots` are folders that have another
    place in every run, and are kept by their name. `price` tells what a reply cost, if anybody
    knows.
    """

    def __init__(  # noqa: PLR0913 - the options of a recording
        self,
        source: ModelSource,
        cassette: Path | str,
        *,
        redactions: RedactionRules | Mapping[str, Any] | None = None,
        roots: Mapping[str, Path] | None = None,
        append: bool = False,
        replace: bool = False,
        backend: str = "",
        task: str = "",
        price: Price | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(cassette)
        self.interrupted = False
        self.relays = can_relay(source)
        self._source = source
        self._price = price
        self._task = task
        self._clock = clock or SystemClock()
        self._began = self._clock.millis()
        present = self._look(append=append, replace=replace)
        stored = parse_redaction_rules(present.header.redactions if present else None)
        wanted = merge_rules(stored, redactions)
        self._normal = Normalizer(wanted, roots=roots)
        self._keep = Redaction(_lasting(wanted))
        title = CassetteTitle(
            self.path.name,
            datetime.fromtimestamp(self._began / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            backend,
            self._normal.seal,
            {name: held for name, held in msgspec.to_builtins(wanted).items() if held},
        )
        self._journal = Journal(self.path, title, fresh=replace)
        self._tips: dict[bytes, tuple[str, int]] = {}
        self._heads: dict[bytes, int] = {}
        self._last = 0
        self._done: list[RecordedResponse] = []
        if present is not None:
            self._resume(present)

    def _look(self, *, append: bool, replace: bool) -> Any:
        if replace or not self.path.exists():
            return None
        tape = load_cassette(self.path)
        if not append and len(tape):
            raise UsageError(
                f"there is a recording already, of {len(tape)} interactions",
                where=str(self.path),
                hint="add to it (append), begin it anew (replace), or choose another name",
            )
        return tape if len(tape) else None

    def _resume(self, tape: Any) -> None:
        for identity, (asked, answered) in tape.chains(self._normal).items():
            self._tips[asked.digest] = ("again", identity)
            self._tips[answered.digest] = ("after", identity)
        for entry in tape.entries:
            self._last = max(self._last, entry.id)
            if entry.head is None and entry.kept:
                head = self._normal.digest_head(tape.read(entry).request)
                self._heads.setdefault(head, entry.id)

    # --------------------------------------------------------------------------- recording

    async def reply(self, request: Request, /) -> Reply:
        """The source's reply, kept on its way back; also the provider's errors are."""
        if (warmed := answer_prewarm(request)) is not None:
            return warmed
        if self._journal.failure is not None:  # nothing is asked that cannot be kept
            raise self._journal.failure
        self._last += 1
        identity, at, start = self._last, self._clock.millis() - self._began, time.perf_counter()
        try:
            reply = await self._source.reply(request)
        except ModelError as error:
            self._note(identity, at, request, response_from_error(error, duration=_since(start)))
            raise
        except BaseException:  # broken off: what never came to its end is no interaction
            self.interrupted = True
            raise
        cost = self._price(reply.model or request.model, reply.usage) if self._price else None
        response = response_from_reply(reply, duration=_since(start), cost=cost)
        self._note(identity, at, request, response)
        return reply

    def output(
        self,
        prompt: str | None,
        response: RecordedResponse,
        *,
        hat: str = MAIN_HAT,
    ) -> None:
        """Keep what a command answered to a prompt; to None, where nobody knows it."""
        self._last += 1
        asked = RecordedRequest(hat=hat, prompt_hash=ANY_HASH)
        if prompt is not None:
            kept = self._normal.tidy(prompt)
            hash_ = self._normal.hash_prompt(prompt)
            asked = RecordedRequest(
                hat=hat, prompt_hash=hash_, prompt_preview=preview(kept), prompt=kept
            )
        at = self._clock.millis() - self._began
        self._write(self._last, at, asked, response)

    def _note(self, identity: int, at: int, request: Request, response: RecordedResponse) -> None:
        asked, chain = self._ask(request, identity)
        self._write(identity, at, asked, response)
        self._tips.setdefault(chain.digest, ("again", identity))
        if response.error is None:
            answered = self._normal.follow_reply(chain, response.said)
            self._tips[answered.digest] = ("after", identity)

    def _write(
        self, identity: int, at: int, asked: RecordedRequest, response: RecordedResponse
    ) -> None:
        kept, roots = hide_roots(
            self._keep.value(msgspec.to_builtins(response, enc_hook=repr)), self._normal.roots
        )
        told = msgspec.convert({**kept, "roots": roots}, RecordedResponse)
        chunks = shift_chunks(response.chunks, response.text, told.text, self._hide)
        response = msgspec.structs.replace(told, chunks=chunks)
        self._journal.add(
            identity, Interaction(id=identity, at_ms=at, request=asked, response=response)
        )
        self._done.append(response)

    def _hide(self, text: str) -> str:
        hidden, _ = hide_roots(self._keep.text(text), self._normal.roots)
        return str(hidden)

    def _ask(self, request: Request, identity: int) -> tuple[RecordedRequest, ConversationDigest]:
        chain, kind, since = self._conversation(request)
        head = self._normal.digest_head(request)
        about: dict[str, Any] = {}
        known = self._heads.get(head)
        if known is None:
            self._heads[head] = identity
            about = msgspec.structs.asdict(self._normal.head(request))
        new, at = self._fresh(request, since[1])
        asked = RecordedRequest(
            hat=request_hat(request),
            prompt_hash=self._normal.seal_hash(head, chain),
            prompt_preview=preview(self._normal.tidy(request.prompt)),
            dialect=str(request.metadata.get("dialect", "")),
            stream=request.stream,
            head=known,
            messages=tuple(self._normal.message(m, at + n) for n, m in enumerate(new)),
            **{kind: since[0]} if kind else {},
            **about,
        )
        return asked, chain

    def _conversation(self, request: Request) -> tuple[ConversationDigest, str, tuple[int, int]]:
        """The conversation, and the latest point of it that is in the cassette already."""
        chain = ConversationDigest(ids={})
        kind, since = "", (0, 0)
        for count, message in enumerate(request.messages, 1):
            chain = self._normal.follow(chain, (message,))
            tip = self._tips.get(chain.digest)
            if tip is not None:
                kind, since = tip[0], (tip[1], count)
        return chain, kind, since

    @staticmethod
    def _fresh(request: Request, since: int) -> tuple[list[Message], int]:
        ids: dict[str, str] = {}
        numbered = [number_call_ids(message, ids) for message in request.messages]
        return numbered[since:], since

    # ------------------------------------------------------------------------------- ending

    def close(self, metadata: Mapping[str, Any] | None = None) -> RecordingSummary:
        """Write the cassette; a second time is nothing."""
        about = dict(metadata or {})
        if self._task:
            about.setdefault("task", self._normal.tidy(self._task))
        if self.interrupted:
            about["interrupted"] = True
        kept, _ = hide_roots(self._keep.value(about), self._normal.roots)
        self._journal.close(kept)
        return self.summary()

    def discard(self) -> None:
        """Keep nothing of it; a cassette that was there before stays as it was."""
        self._journal.discard()

    def summary(self) -> RecordingSummary:
        """The numbers of this recording."""
        costs = [one.cost_dollars for one in self._done if one.cost_dollars is not None]
        return RecordingSummary(
            str(self.path),
            self.path.stem,
            len(self._done),
            sum(one.tokens for one in self._done),
            round(sum(costs), 8) if costs else None,
            round((self._clock.millis() - self._began) / 1000, 3),
            self.interrupted,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.interrupted = self.interrupted or isinstance(
            error, (KeyboardInterrupt, asyncio.CancelledError)
        )
        self.close()


def _since(start: float) -> float:
    millis = (time.perf_counter() - start) * 1000
    return round(millis) if millis >= PRECISE else round(millis, 1)


def _lasting(rules: RedactionRules) -> RedactionRules:
    """The rules for what is given back: what a user named is hidden, what only varies stays."""
    own = {name: held for name, held in rules.patterns.items() if isinstance(held, str)}
    return RedactionRules({**own})


def price_table(prices: Iterable[tuple[str, float, float]]) -> Price:
    """A price by the model's name: dollars for a million tokens in, and out."""
    known = {model: (given, taken) for model, given, taken in prices}

    def price(model: str, usage: Usage) -> float | None:
        if model not in known:
            return None
        given, taken = known[model]
        return (usage.input * given + usage.output * taken) / MILLION

    return price


# --- One interaction of a cassette, recorded again.


class Rerecording:
    """A replay that asks the real model for one interaction only, and keeps that."""

    def __init__(self, cassette: Path, number: int, live: ModelSource) -> None:
        tape = load_cassette(cassette)
        if not 1 <= number <= len(tape):
            raise UsageError(
                f"there is no interaction {number}",
                where=str(cassette),
                hint=f"they are numbered from 1 to {len(tape)}",
            )
        self._path = cassette
        self._number = number
        self._live = live
        self._replay = Cassette(tape, strict=False)
        self._apart = cassette.with_name(f".{cassette.name}.renewed")
        self.renewed = False

    async def reply(self, request: Request, /) -> Reply:
        """The recorded reply, or for the one interaction a new one."""
        if self._replay.next_number(request) != self._number:
            return await self._replay.reply(request)
        self._replay.take(request)
        self.renewed = True
        rules = self._replay.tape.header.redactions
        with Recording(self._live, self._apart, redactions=rules, replace=True) as recording:
            return await recording.reply(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Put the new interaction in the place of the old one, unless something went wrong."""
        if self.renewed and kind is None:
            (new,) = load_cassette(self._apart)
            entry = self._replay.tape.entries[self._number - 1]
            at = self._replay.tape.read(entry).at_ms
            replace_interaction(
                self._path, self._number, msgspec.structs.replace(new, id=entry.id, at_ms=at)
            )
        self._apart.unlink(missing_ok=True)
