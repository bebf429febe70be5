"""The matrix: who asks (a client in one of its ways), streaming or not, and out of which home.

To add a client, add its script to `clients/`, its home to `HOMES` where its packages do not fit
into the lock, and its rows to `ROWS`. `./dev clients` installs the homes and runs the rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from offbook.files import copy_atomic
from offbook.sources.playbook import Turn, call, say, when
from tests.matrix.homes import COMMANDS, HOMES, Home

SCRIPTS = Path(__file__).parent / "clients"
WHOLE = os.environ.get("OFFBOOK_MATRIX") == "whole"  # as ./dev clients asks for it
PROMPT = "How is the weather in Paris?"
FINAL = "It is 21 degrees in Paris."


WEATHER = when(PROMPT, [call("get_weather", {"city": "Paris"}), say(FINAL)])
ALONE = when(PROMPT, [say(FINAL)])
SHAPED = when(PROMPT, [say('{"city": "Paris", "degrees": 21}')])
LAST_CALL = when(
    PROMPT,
    [call("get_weather", {"city": "Paris"}), call("final_answer", {"answer": FINAL})],
)
CODE = when(PROMPT, [say("Look.\n<code>\nfinal_answer(get_weather(city='Paris'))\n</code>")])
ECHO = "echo 21 degrees in Paris"
SHELL = when(PROMPT, [call("Bash", {"command": ECHO}), say(FINAL)])
CODEX_SHELL = when(PROMPT, [call("exec_command", {"cmd": ECHO}), say(FINAL)])
GEMINI_SHELL = when(PROMPT, [call("run_shell_command", {"command": ECHO}), say(FINAL)])
TOUCH = when(PROMPT, [call("Bash", {"command": f"touch it; {ECHO}"}), say(FINAL)])
MCP = when(PROMPT, [call("mcp__wx__get_weather", {"city": "Paris"}), say(FINAL)])


@dataclass(frozen=True)
class Row:
    """One run of one client."""

    client: str
    script: str
    variant: str
    stream: bool
    home: str = ""
    turn: Turn = WEATHER
    text: str = FINAL
    flat: bool = False  # it tells the results of its tools as words, not as results

    def __str__(self) -> str:
        return f"{self.client} {self.variant} {self.way}"

    @property
    def way(self) -> str:
        return "stream" if self.stream else "plain"

    @property
    def lives(self) -> Home | None:
        """Its home; None is the checkout's own environment, made from the lock."""
        return HOMES[self.home] if self.home else None

    @property
    def command(self) -> list[str]:
        """The words that run it, once it is in its place."""
        words = [self.variant, self.way, "{prompt}"]
        home = self.lives
        if home is None or home.name == COMMANDS:
            return [sys.executable, str(SCRIPTS / self.script), *words]
        if home.npm:
            return ["node", str(home.folder / self.script), *words]
        return [home.python, str(SCRIPTS / self.script), *words]

    def place(self) -> None:
        """Put its scripts beside its packages, where Node looks for them."""
        home = self.lives
        if home is not None and self.script.endswith(".mjs"):
            for script in SCRIPTS.glob("*.mjs"):
                copy_atomic(script, home.folder / script.name)

    @property
    def environment(self) -> dict[str, str]:
        """Where its packages are."""
        return {"PREFIX": str(self.lives.folder)} if self.lives and self.lives.npm else {}


def _both(client: str, script: str, *variants: str, home: str = "") -> Iterator[Row]:
    for variant in variants:
        for stream in (False, True):
            yield Row(client, script, variant, stream, home)


ROWS = [
    *_both("openai", "openai_sdk.py", "chat", "responses", "previous"),
    Row("openai", "openai_sdk.py", "chat-helper", stream=True),
    Row("openai", "openai_sdk.py", "responses-helper", stream=True),
    Row("openai", "openai_sdk.py", "websocket", stream=True),
    *(
        Row(
            "openai",
            "openai_sdk.py",
            variant,
            stream=False,
            turn=SHAPED,
            text="Weather(city='Paris', degrees=21)",
        )
        for variant in ("chat-parse", "responses-parse")
    ),
    Row("openai", "openai_sdk.py", "misc", stream=False, turn=ALONE),
    *_both("anthropic", "anthropic_sdk.py", "messages", "runner", "runner-nothread"),
    Row("anthropic", "anthropic_sdk.py", "helper", stream=True),
    Row(
        "anthropic",
        "anthropic_sdk.py",
        "parse",
        stream=False,
        turn=SHAPED,
        text="Weather(city='Paris', degrees=21)",
    ),
    Row("anthropic", "anthropic_sdk.py", "misc", stream=False, turn=ALONE),
    *_both("google-genai", "genai_sdk.py", "auto"),
    Row("google-genai", "genai_sdk.py", "misc", stream=False, turn=ALONE),
    *_both("pydantic-ai", "pydantic_agent.py", "chat", "responses", "anthropic", "google"),
    *_both("openai-agents", "agents_sdk.py", "chat", "responses"),
    *_both("langchain", "langchain_agent.py", "chat", "responses", "anthropic"),
    Row("langchain", "langchain_agent.py", "embeddings", stream=False, turn=ALONE),
    *(
        Row("smolagents", "smolagents_agent.py", "tool", stream, turn=LAST_CALL, flat=True)
        for stream in (False, True)
    ),
    *(
        Row(
            "smolagents",
            "smolagents_agent.py",
            "code",
            stream,
            turn=CODE,
            text="21 degrees in Paris",
        )
        for stream in (False, True)
    ),
    *_both(
        "litellm", "litellm_loop.py", "openai", "responses", "anthropic", "gemini", home="litellm"
    ),
    Row("litellm", "litellm_loop.py", "embedding", stream=False, home="litellm", turn=ALONE),
    *(
        Row("inspect", "inspect_task.py", variant, variant == "anthropic", home="inspect")
        for variant in ("openai", "openai-api", "responses", "anthropic", "google", "mcp")
    ),
    *(
        Row("claude-agent-sdk", "claude_agent.py", variant, True, "claude-agent-sdk", turn)
        for variant, turn in (("bash", SHELL), ("permission", TOUCH), ("mcp", MCP))
    ),
    *(
        Row("commands", "commands.py", variant, stream=True, home=COMMANDS, turn=turn)
        for variant, turn in (
            ("codex", CODEX_SHELL),
            ("codex-websocket", CODEX_SHELL),
            ("claude", SHELL),
            ("claude-bare", SHELL),
            ("gemini", GEMINI_SHELL),
            ("gemini-router", GEMINI_SHELL),
        )
    ),
    *_both("openai 2 (httpx)", "openai_sdk.py", "chat", "responses", "previous", home="strands"),
    *_both("anthropic 0 (httpx)", "anthropic_sdk.py", "messages", home="strands"),
    *_both("google-genai 2", "genai_sdk.py", "auto", home="adk"),
    *_both("google-adk", "adk_agent.py", "gemini", home="adk"),
    *_both("strands", "strands_agent.py", "openai", home="strands"),
    Row("strands", "strands_agent.py", "anthropic", stream=True, home="strands"),
    *_both("node openai", "openai.mjs", "chat", "responses", home="node"),
    *_both("node anthropic", "anthropic.mjs", "messages", home="node"),
    *_both("node google-genai", "genai.mjs", "generate", home="node"),
    *_both(
        "ai sdk", "ai.mjs", "chat", "responses", "compatible", "anthropic", "google", home="node"
    ),
    *_both("langchain.js", "langchain.mjs", "chat", "responses", "anthropic", home="langchain-js"),
]
