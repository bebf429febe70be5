"""How the scripted sources match: one set of rules for playbooks, mocks and cassettes.

1. A side request of a known client (a title, a router, a quota probe, a prewarm) takes no step of a
   script: it gets a fixed reply, which the trace marks with the role `auxiliary (…)`. A role, a
   line or an interaction that matches it wins (`answer_side_request`).
2. What belongs to the request by its content comes before what comes next in order: roles before
   turns, patterns (`PatternQueue`) after the lines in order, equal requests before the next one.
3. An entry answers once, unless it says otherwise; used up, it matches no more.
4. A tool result belongs to the call with its id and its tool. A call of the script whose result
   never comes back leaves the script unfinished (`AwaitedResults`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec

from offbook.determinism.run_context import stable_id
from offbook.errors import ScriptUnfinished, UsageError
from offbook.exchange.messages import Image, RawBlock, Text, Thinking, ToolCall, ToolResult
from offbook.exchange.model import SIDE_REPLY, Reply
from offbook.secrets import word_finder

if TYPE_CHECKING:
    from offbook.exchange.messages import AnyBlock, Message
    from offbook.exchange.model import Request
    from offbook.trace.globs import Glob

T = TypeVar("T")


# ----------------------------------------------------------------------- tool calls


class AwaitedResults(dict[str, tuple[str, T]]):
    """The calls of a script whose results have not come back: by id, the tool and its entry."""

    def __init__(self) -> None:
        super().__init__()
        self._others: dict[str, str] = {}  # the tool whose result came under the id of a call

    def receive(self, sent: Iterable[ToolResult]) -> list[tuple[T, ToolResult]]:
        """Return the entries with their results, in the order of the calls."""
        results: dict[str, ToolResult] = {}
        for result in sent:
            if result.call_id in self:
                # The id alone is not enough: the agent may have changed the call in its history.
                if result.name in {"", self[result.call_id][0]}:
                    results[result.call_id] = result
                else:
                    self._others[result.call_id] = result.name
        if not results:
            return []
        # Some clients report the call that ended first.
        calls = [*self]
        return [(self.pop(call_id)[1], results[call_id]) for call_id in calls if call_id in results]

    def error(self, where: str, step: str, fix: str, *, lost: str = "") -> ScriptUnfinished:
        """Return the error for the first result that never came back.

        `step` is the entry of the script, `lost` what did not happen for want of the result, and
        `fix` how a script says that the result does not come.
        """
        call_id, (tool, _) = next(iter(self.items()))
        other = self._others.get(call_id)
        got = f"the result of a call of {other!r} with the same id" if other else ""
        return ScriptUnfinished(
            f"the result of call {tool} never came back{lost}",
            where=where,
            hint=f"  expected: a request with the result of {step}\n"
            f"  got: {got or 'no request has it'}\n"
            "  fix: let the agent run the tool and send the result with its next request; if\n"
            f"    it ends with this call, {fix}",
        )


def make_call_id(request: Request, number: int) -> str:
    """Return the id of the n-th tool call of a run, in the form of the request's provider."""
    form = None
    if dialect := request.metadata.get("dialect"):  # a session has none
        from offbook.exchange.providers import all_providers

        provider = all_providers().get(dialect)
        form = provider and provider.call_id
    prefix, length = form or ("call_", 24)
    return stable_id(prefix, str(number), length=length)


def refuse_unscripted(request: Request) -> None:
    """Raise an error for an option of a request that no scripted reply satisfies."""
    if not request.parameters:
        return
    from offbook.exchange.providers import all_providers

    provider = all_providers().get(request.metadata.get("dialect", ""))
    for path, supported in provider.unscripted.items() if provider else ():
        value: Any = request.parameters
        for name in path.split("."):
            value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        if value is not None and not any(each in supported for each in values):
            raise UsageError(
                f"Offbook does not support {path.rpartition('.')[2]}={value!r} in a request to"
                f" {request.metadata['dialect']}",
                hint="send the request without it: a script has no value for it",
            )


def run_at_provider(request: Request, call: ToolCall) -> tuple[AnyBlock, ...]:
    """Return the blocks of a call that the provider itself runs; none if the agent runs it."""
    for tool in request.tools:
        if tool.name == call.name:
            break
    else:
        return ()
    if tool.kind == "function":  # the usual case
        return ()
    from offbook.exchange.dialects.dialect import RunsTools
    from offbook.exchange.providers import all_providers, load_dialect

    name = request.metadata.get("dialect")
    dialect = load_dialect(name) if name in all_providers() else None
    return dialect.run_tool(call, tool, request) if isinstance(dialect, RunsTools) else ()


# ------------------------------------------------------------------------ side requests
# Each entry matches on words that no other request of its client contains. To support another
# client, add its entries to `SIDE_REQUESTS`.

TITLE = "A rehearsal"


class SideRequest(msgspec.Struct, frozen=True):
    """One kind of side request: its reply, and the conditions that must all hold.

    A side request offers no tools. `agent` is a prefix of the user agent, `prompt` the whole text
    of the only message; `system` and `model` are contained in the request's.
    """

    name: str
    answer: str
    agent: str = ""
    system: str = ""
    model: str = ""
    prompt: str = ""

    def matches(self, request: Request) -> bool:
        """Return whether the request is of this kind."""
        return (
            self.system in request.system
            and self.model in request.model
            and str(request.metadata.get("user-agent", "")).startswith(self.agent)
            and (not self.prompt or (len(request.messages) == 1 and request.prompt == self.prompt))
        )


SIDE_REQUESTS = (
    SideRequest(
        "Gemini CLI router",
        '{"complexity_reasoning": "a rehearsal", "complexity_score": 50}',
        agent="GeminiCLI",
        system="specialized Task Routing AI",
    ),
    SideRequest(
        "Gemini CLI next speaker",
        '{"reasoning": "a rehearsal", "next_speaker": "user"}',
        agent="GeminiCLI",
        system="who should logically speak next",
    ),
    SideRequest(
        "opencode title", TITLE, system="You are a title generator. You output ONLY a thread title"
    ),
    SideRequest("inspect probe", "hello, world", prompt="Please say 'hello, world'"),
    SideRequest("Claude Code quota", "ok", agent="claude-cli", prompt="quota"),
    SideRequest("Claude Code warm-up", "ok", agent="claude-cli", prompt="Warmup"),
    SideRequest(
        "Claude Code topic",
        '{"isNewTopic": false, "title": null}',
        agent="claude-cli",
        system="indicates a new conversation topic",
    ),
    SideRequest("Claude Code small model", TITLE, agent="claude-cli", model="haiku"),
)
_USER_AGENTS = tuple({entry.agent for entry in SIDE_REQUESTS if entry.agent})
_ANY_AGENT = tuple(entry for entry in SIDE_REQUESTS if not entry.agent)


def answer_prewarm(request: Request) -> Reply | None:
    """Return an empty reply if the client only warms up (`generate: false`), else None."""
    if request.metadata.get("generate") is not False:
        return None
    return Reply(model=request.model, role=f"{SIDE_REPLY}prewarm)")


def answer_side_request(request: Request) -> Reply | None:
    """Return the fixed reply to a side request, or None for a request of the agent's work."""
    if (prewarm := answer_prewarm(request)) is not None:
        return prewarm
    # Every reply passes here, so rule out most requests without a look at the entries.
    if request.tools or not request.metadata:
        return None
    user_agent = str(request.metadata.get("user-agent", ""))
    for entry in SIDE_REQUESTS if user_agent.startswith(_USER_AGENTS) else _ANY_AGENT:
        if entry.matches(request):
            blocks = (Text(entry.answer),)
            return Reply(blocks, model=request.model, role=f"{SIDE_REPLY}{entry.name})")
    return None


# ----------------------------------------------------------------------------- patterns

UNINDEXED = 8  # fewer patterns are tried one by one: the index gains nothing before


WORD_LENGTH = 12  # longer words are cut: rare enough, and the search stays small


class GlobIndex:
    """Finds the patterns that may match a text, among thousands, in one pass over the text.

    Each pattern is indexed by its rarest word: a text that lacks the word cannot match. A search
    for all words at once (Aho-Corasick) selects the few patterns to try, so that a request costs
    about the same with 1,000 lines as with one (`tests/sources/server/test_growth.py`).
    """

    def __init__(self, globs: Iterable[tuple[int, Glob]]) -> None:
        self._globs = list(globs)
        self._without_word: list[int] = []
        self._by_word: list[list[int]] = []
        if len(self._globs) <= UNINDEXED:
            self._find_words = None
            return
        words = [
            {word[:WORD_LENGTH] for word in glob.pattern.replace("*", " ").split()}
            for _, glob in self._globs
        ]
        counts = Counter(word for group in words for word in group)
        entries: dict[str, list[int]] = {}
        for index, group in enumerate(words):
            if group:
                rarest = min(group, key=lambda word: (counts[word], -len(word), word))
                entries.setdefault(rarest, []).append(index)
            else:
                self._without_word.append(index)
        self._by_word = list(entries.values())
        self._find_words = word_finder(map(encode_text, entries))

    def find_candidates(self, text: str) -> list[tuple[int, Glob]]:
        """Return the patterns that may match, with their numbers, in their order."""
        if self._find_words is None:
            return self._globs
        indexes = set(self._without_word)
        for word in {word for word, _, _ in self._find_words(encode_text(text))}:
            indexes.update(self._by_word[word])
        return [self._globs[index] for index in sorted(indexes)]


def encode_text(text: str) -> bytes:
    """Return the bytes of a text that may contain halves of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def join_values(messages: Iterable[Message]) -> str:
    """Return the text that a pattern is matched against: every value, one a line.

    It contains texts, roles, and the names, ids and arguments of tool calls, but not the system
    prompt, the offered tools or the model.
    """
    values: list[str] = []
    for message in messages:
        blocks = message.blocks
        if len(blocks) == 1:  # most messages: spares the loops
            block = blocks[0]
            if isinstance(block, Text):
                values += (block.text, message.role)
                continue
            if isinstance(block, ToolResult):
                values += (block.text, message.role, block.call_id)
                continue
        for block in blocks:
            if isinstance(block, (Text, Thinking, ToolResult)):
                values.append(block.text)
            elif isinstance(block, Image):
                values.append(block.url)
            elif isinstance(block, RawBlock):
                values += _strings(block.data)
        values.append(message.role)
        for block in blocks:
            if isinstance(block, ToolResult):
                values.append(block.call_id)
            elif isinstance(block, ToolCall):
                values += (*_strings(block.arguments), block.id, block.name)
    return "\n".join(filter(None, values))


def _strings(value: object) -> Iterator[str]:
    """Yield the strings in a JSON value, objects in the order of their keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        for key in sorted(fields):
            yield from _strings(fields[key])
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from _strings(item)


class PatternEntry(Protocol):
    """An entry of a script: with a pattern or in order, used once or again and again."""

    @property
    def number(self) -> int:
        """Its number in the script."""
        ...

    @property
    def glob(self) -> Glob | None:
        """Its pattern; None for an entry that answers in order."""
        ...

    @property
    def sticky(self) -> bool:
        """True if it is not used up."""
        ...


EntryT = TypeVar("EntryT", bound=PatternEntry)


class PatternQueue(Generic[EntryT]):
    """The remaining entries of a script: those in order, and those with a pattern."""

    def __init__(self) -> None:
        self.queue: deque[EntryT] = deque()
        self._patterns: dict[int, EntryT] = {}
        self._index: GlobIndex | None = None

    def add(self, entry: EntryT) -> None:
        """Append an entry."""
        if entry.glob is None:
            self.queue.append(entry)
        else:
            self._patterns[entry.number] = entry
            self._index = None

    def next(self) -> EntryT:
        """Return the next entry in order."""
        return self.queue[0] if self.queue[0].sticky else self.queue.popleft()

    def take(self, text: str) -> EntryT | None:
        """Return the first entry whose pattern matches; remove it if it answers once."""
        if self._index is None:  # built with the first request: a file may be only linted
            entries = self._patterns.items()
            self._index = GlobIndex((number, entry.glob) for number, entry in entries if entry.glob)
        for number, glob in self._index.find_candidates(text):
            entry = self._patterns.get(number)
            if entry is not None and glob.matches(text):
                if not entry.sticky:
                    del self._patterns[number]
                return entry
        return None
