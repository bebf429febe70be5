"""What a tool does, by its name, its description and its parameters: one vocabulary for all.

A tool that runs for real is taken to have an effect as soon as a word says so (`has_effect`,
`find_side_effect`). Whether an agent may be misused is asked of what a tool is for (`classify`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from offbook.exchange.schema_values import properties_of

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
    put save overwrite erase wipe purge destroy terminate schedule reserve dispatch release donate
    launch promote escalate export import copy sync email mail text message tweet call issue bash
    shell sh terminal powershell eval
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
# Verbs that are often nouns or without an effect: a tool with a text that runs for real has one.
MAYBE_POWERFUL = _words("add command store")
READS = _words("get find list lookup look search read show check fetch count describe")
# What is not called for real in a first run, by a word of the name or by the description.
SIDE_EFFECTS = {
    word: effect
    for effect, words in {
        "sends": "send",
        "sends mail": "email mail",
        "sends a message": "sms notify",
        "publishes": "publish tweet",
        "uploads": "upload",
        "deploys": "deploy",
        "pays": "pay payment charge refund purchase buy checkout",
        "writes files": "write save",
        "deletes": "delete remove unlink",
        "runs commands": "shell bash exec execute",
    }.items()
    for word in words.split()
}
EFFECTS_IN_TEXT = {
    "sends a message": r"sends? (?:an? |the )?(?:e-?mail|message|sms|notification)",
    "pays": r"(?:charges?|pays?|refunds?) (?:an? |the |money|customer|for)",
    "writes files": r"writes? (?:\w+ )*(?:file|disk)",
    "deletes": r"(?:deletes?|removes?) (?:an? |the )",
}
# Calls that end a run in known frameworks, and those that hand over to another agent.
LAST_TOOLS = re.compile(r"^(final_result|final_answer)|^submit$")
HANDOFFS = re.compile(r"^(transfer|handoff|hand_off|delegate)_(back_)?to_")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class ToolClass(msgspec.Struct, frozen=True):
    """Whether a tool returns untrusted text, and whether its effect matters."""

    source: bool = False
    sink: bool = False


def classify(tool: Tool) -> ToolClass:
    """Return what a tool seems to do, by its name, its description and its parameters."""
    return _classify(tool.name, tool.description, tuple(properties_of(tool.schema)))


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
        if described[:2] == ["ask", "for"]:  # a request, which returns no text
            return ToolClass()
    others = OUTSIDE & {*words, *given, *described}
    outside = bool(others) and not (verb == "list" and others <= NAMES)
    if verb in POWERFUL and not (HARMLESS & {*words}):
        # `mail_count(…)` has no receiver; `mail(to, text)` has one.
        needs_receiver = verb in OUTSIDE and verb not in {"post", "issue", "upload", "invite"}
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


def has_effect(tool: Tool) -> bool:
    """Return whether a tool may change something outside of the conversation when it runs."""
    words = split_words(tool.name)
    if READS & {*words[:1]}:
        return False
    takes_text = any(rules.get("type") == "string" for rules in properties_of(tool.schema).values())
    powerful = POWERFUL | MAYBE_POWERFUL if takes_text else POWERFUL
    return bool(powerful & {*words} or find_side_effect(tool))


def find_side_effect(tool: Tool) -> str:
    """Return the side effect of a tool, by its name and description, or ""."""
    words = split_words(tool.name)
    if HANDOFFS.search(tool.name) or READS & {*words[:1]}:
        return ""
    named = (SIDE_EFFECTS[word] for word in words if word in SIDE_EFFECTS)
    described = (
        effect
        for effect, pattern in EFFECTS_IN_TEXT.items()
        if re.search(rf"\b(?:{pattern})", tool.description, re.IGNORECASE)
    )
    return next(named, None) or next(described, "")


def _is_verb(word: str) -> bool:
    return word in POWERFUL or word in READING or word in LOOKING


def split_words(text: str) -> list[str]:
    """Return the words of a name, such as `send_mail` or `sendMail`, in lower case."""
    return [word.lower() for word in _WORD.findall(text)]
