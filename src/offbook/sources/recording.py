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
from offbook.exchange.relay import relays
from offbook.sources.auxiliary import warm_up
from offbook.sources.cassette.edit import Title
from offbook.sources.cassette.format import (
    ANY,
    MAIN,
    Answered,
    Asked,
    Interaction,
    move_chunks,
    preview,
    write_error,
    write_reply,
)
from offbook.sources.cassette.journal import Journal, load
from offbook.sources.cassette.normal import (
    Chain,
    Normal,
    count_ids,
    hide_roots,
    merge_rules,
)
from offbook.sources.cassette.replay import hat_of
from offbook.trace.redaction import Redaction, Rules, read_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offbook.exchange.reply import Reply, Usage
    from offbook.exchange.request import Request
    from offbook.exchange.source import ModelSource

    Price = Callable[[str, Usage], float | None]

MILLION = 1_000_000
PRECISE = 10


class Summary(msgspec.Struct, frozen=True):
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
        redactions: Rules | Mapping[str, Any] | None = None,
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
        self.relays = relays(source)
        self._source = source
        self._price = price
        self._task = task
        self._clock = clock or SystemClock()
        self._began = self._clock.millis()
        present = self._look(append=append, replace=replace)
        stored = read_rules(present.header.redactions if present else None)
        wanted = merge_rules(stored, redactions)
        self._normal = Normal(wanted, roots=roots)
        self._keep = Redaction(_lasting(wanted))
        title = Title(
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
        self._done: list[Answered] = []
        if present is not None:
            self._resume(present)

    def _look(self, *, append: bool, replace: bool) -> Any:
        if replace or not self.path.exists():
            return None
        tape = load(self.path)
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
        if (warmed := warm_up(request)) is not None:
            return warmed
        if self._journal.failure is not None:  # nothing is asked that cannot be kept
            raise self._journal.failure
        self._last += 1
        identity, at, start = self._last, self._clock.millis() - self._began, time.perf_counter()
        try:
            reply = await self._source.reply(request)
        except ModelError as error:
            self._note(identity, at, request, write_error(error, duration=_since(start)))
            raise
        except BaseException:  # broken off: what never came to its end is no interaction
            self.interrupted = True
            raise
        cost = self._price(reply.model or request.model, reply.usage) if self._price else None
        response = write_reply(reply, duration=_since(start), cost=cost)
        self._note(identity, at, request, response)
        return reply

    def output(
        self,
        prompt: str | None,
        response: Answered,
        *,
        hat: str = MAIN,
    ) -> None:
        """Keep what a command answered to a prompt; to None, where nobody knows it."""
        self._last += 1
        asked = Asked(hat=hat, prompt_hash=ANY)
        if prompt is not None:
            kept = self._normal.tidy(prompt)
            hash_ = self._normal.hash_prompt(prompt)
            asked = Asked(hat=hat, prompt_hash=hash_, prompt_preview=preview(kept), prompt=kept)
        at = self._clock.millis() - self._began
        self._write(self._last, at, asked, response)

    def _note(self, identity: int, at: int, request: Request, response: Answered) -> None:
        asked, chain = self._ask(request, identity)
        self._write(identity, at, asked, response)
        self._tips.setdefault(chain.digest, ("again", identity))
        if response.error is None:
            answered = self._normal.follow_reply(chain, response.said)
            self._tips[answered.digest] = ("after", identity)

    def _write(self, identity: int, at: int, asked: Asked, response: Answered) -> None:
        kept, roots = hide_roots(
            self._keep.value(msgspec.to_builtins(response, enc_hook=repr)), self._normal.roots
        )
        told = msgspec.convert({**kept, "roots": roots}, Answered)
        chunks = move_chunks(response.chunks, response.text, told.text, self._hide)
        response = msgspec.structs.replace(told, chunks=chunks)
        self._journal.add(
            identity, Interaction(id=identity, at_ms=at, request=asked, response=response)
        )
        self._done.append(response)

    def _hide(self, text: str) -> str:
        hidden, _ = hide_roots(self._keep.text(text), self._normal.roots)
        return str(hidden)

    def _ask(self, request: Request, identity: int) -> tuple[Asked, Chain]:
        chain, kind, since = self._conversation(request)
        head = self._normal.digest_head(request)
        about: dict[str, Any] = {}
        known = self._heads.get(head)
        if known is None:
            self._heads[head] = identity
            about = msgspec.structs.asdict(self._normal.head(request))
        new, at = self._fresh(request, since[1])
        asked = Asked(
            hat=hat_of(request),
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

    def _conversation(self, request: Request) -> tuple[Chain, str, tuple[int, int]]:
        """The conversation, and the latest point of it that is in the cassette already."""
        chain = Chain(ids={})
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
        numbered = [count_ids(message, ids) for message in request.messages]
        return numbered[since:], since

    # ------------------------------------------------------------------------------- ending

    def close(self, metadata: Mapping[str, Any] | None = None) -> Summary:
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

    def summary(self) -> Summary:
        """The numbers of this recording."""
        costs = [one.cost_dollars for one in self._done if one.cost_dollars is not None]
        return Summary(
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


def _lasting(rules: Rules) -> Rules:
    """The rules for what is given back: what a user named is hidden, what only varies stays."""
    own = {name: held for name, held in rules.patterns.items() if isinstance(held, str)}
    return Rules({**own})


def price_table(prices: Iterable[tuple[str, float, float]]) -> Price:
    """A price by the model's name: dollars for a million tokens in, and out."""
    known = {model: (given, taken) for model, given, taken in prices}

    def price(model: str, usage: Usage) -> float | None:
        if model not in known:
            return None
        given, taken = known[model]
        return (usage.input * given + usage.output * taken) / MILLION

    return price
