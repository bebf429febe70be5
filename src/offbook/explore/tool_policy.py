"""Which tools return untrusted text, and which ones have an effect that matters.

    explore(world, prompt, untrusted("fetch_page"), powerful("send_mail"))

Without a policy the name, the description and the parameters of a tool decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError

if TYPE_CHECKING:
    from offbook.exchange.model import Tool


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The first of these verbs in a name decides.
POWERFUL = _words("""
    send pay delete remove exec execute run write transfer post publish buy purchase order book
    cancel refund update set create insert drop grant revoke approve deploy merge push commit upload
    submit forward reply respond share invite trigger reset restart shutdown kill disable enable
    install uninstall move rename edit modify change replace append withdraw charge wire sell trade
    ship unlock lock notify assign close archive ban block subscribe unsubscribe register sign patch
    put save overwrite erase wipe purge destroy terminate schedule dispatch release donate launch
    promote escalate export import copy sync email mail text message tweet call issue bash shell sh
    terminal powershell eval
""")
READING = _words("""
    fetch read search browse scrape crawl download visit navigate receive retrieve summarize
    summarise extract translate parse scan google wikipedia curl
""")
LOOKING = _words("""
    get list find lookup look query check show view poll pull load open inspect describe count
    calculate compute convert compare rank classify validate verify analyze analyse estimate plan
    think ask answer draft login
""")
# What others write: a tool that looks at it returns their text.
OUTSIDE = _words("""
    page pages web website webpage site url uri http https link mail mails email emails inbox
    mailbox message messages chat chats sms ticket tickets issue issues comment comments review
    reviews post posts tweet tweets feed news article articles document documents doc docs file
    files attachment attachments pdf transcript forum thread threads wiki calendar invite internet
    online external rss repo repository readme slack discord blog upload uploads feedback survey
    resume cv newsletter submission submissions pr notification notifications notes database
    knowledge conversation conversations profile listing listings
""")
# A list of these has names only.
NAMES = _words("""
    file files attachment attachments document documents doc docs note notes page pages post posts
    article articles repo repository wiki calendar profiles database
""")
# A verb of power is a noun in `order_status`, and has no effect in `write_draft`.
HARMLESS = _words("""
    status info details history count balance price report draft summary outline plan answer
    scratchpad memory todo test tests search preview template thought thoughts reasoning
""")
ADDED = _words("user member key permission admin role contact collaborator account recipient")
SINK_PARAMETERS = _words("to recipient recipients command cmd sql code script amount iban payee")
SOURCE_PARAMETERS = _words("url uri link")
BODY_PARAMETERS = _words("method body data payload")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class ToolPolicy(msgspec.Struct, frozen=True):
    """The tools that the user marked. With marks, a side has these tools and no others."""

    untrusted: tuple[str, ...] = ()
    powerful: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        """All tools that are marked."""
        return (*self.untrusted, *self.powerful)

    def is_source(self, tool: Tool, own: Collection[str] = ()) -> bool:
        """Return whether a tool returns untrusted text; `own` are tools that do not count."""
        if self.untrusted:
            return tool.name in self.untrusted
        return tool.name not in own and classify(tool).source

    def is_sink(self, tool: Tool, own: Collection[str] = ()) -> bool:
        """Return whether a tool has an effect that matters."""
        if self.powerful:
            return tool.name in self.powerful
        return tool.name not in own and classify(tool).sink


def untrusted(*tools: str) -> ToolPolicy:
    """Return a policy for `explore`: the results of these tools have untrusted text.

    The generated model obeys instructions in it.
    """
    return ToolPolicy(untrusted=_check_names(tools))


def powerful(*tools: str) -> ToolPolicy:
    """Return a policy for `explore`: no untrusted text may decide how these tools run."""
    return ToolPolicy(powerful=_check_names(tools))


def _check_names(tools: tuple[object, ...]) -> tuple[str, ...]:
    for tool in tools or ("",):
        if not isinstance(tool, str) or not tool:
            raise UsageError(
                f"expected names of tools, got {tool!r}", hint='write untrusted("fetch_page")'
            )
    return cast("tuple[str, ...]", tools)


def join_policies(policies: Iterable[ToolPolicy]) -> ToolPolicy:
    """Return one policy with all marks."""
    policies = [*policies]
    return ToolPolicy(
        tuple(dict.fromkeys(name for policy in policies for name in policy.untrusted)),
        tuple(dict.fromkeys(name for policy in policies for name in policy.powerful)),
    )


class ToolClass(msgspec.Struct, frozen=True):
    """Whether a tool returns untrusted text, and whether its effect matters."""

    source: bool = False
    sink: bool = False


def classify(tool: Tool) -> ToolClass:
    """Return what a tool seems to do, by its name, its description and its parameters."""
    schema = tool.schema.get("properties")
    names = [*cast("dict[str, Any]", schema)] if isinstance(schema, dict) else []
    return _classify(tool.name, tool.description, tuple(names))


@lru_cache(maxsize=256)
def _classify(name: str, description: str, parameters: tuple[str, ...]) -> ToolClass:
    words = split_words(name)
    given = {word for parameter in parameters for word in split_words(parameter)}
    described = split_words(description.partition(".")[0])
    verb = next((word for word in words if word in POWERFUL | READING | LOOKING), "")
    if not verb and described:  # "Sends a mail to a person."
        first = described[0]
        stems = (first, first.removesuffix("s"), first.removesuffix("es"))
        verb = next((word for word in stems if _is_verb(word)), "")
        if described[:2] == ["ask", "for"]:  # a request, which returns no text of others
            return ToolClass()
    others = OUTSIDE & {*words, *given, *described}
    outside = bool(others) and not (verb == "list" and others <= NAMES)
    if verb in POWERFUL and not (HARMLESS & {*words}):
        # `mail_count(…)` has no receiver; `mail(to, text)` has one.
        needs_receiver = verb in OUTSIDE and verb not in {"post", "issue"}
        if not needs_receiver or SINK_PARAMETERS & given:
            return ToolClass(sink=True)
    if "add" in words and ADDED & {*words}:
        return ToolClass(sink=True)
    if verb in READING or (verb in LOOKING and outside):
        both = "and" in words and bool(POWERFUL & {*words})
        return ToolClass(source=True, sink=both)
    if verb:
        return ToolClass()
    is_source = bool((OUTSIDE & {*words}) or (SOURCE_PARAMETERS & given))
    is_sink = bool(SINK_PARAMETERS & given)
    if SOURCE_PARAMETERS & given and BODY_PARAMETERS & given:  # `http_request(url, method, body)`
        return ToolClass(source=True, sink=True)
    return ToolClass(is_source and not is_sink, is_sink)


def _is_verb(word: str) -> bool:
    return word in POWERFUL or word in READING or word in LOOKING


def split_words(text: str) -> list[str]:
    """Return the words of a name, such as `send_mail` or `sendMail`, in lower case."""
    return [word.lower() for word in _WORD.findall(text)]
