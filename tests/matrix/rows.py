"""The rows of the matrix: a client, one of its APIs, streaming or not, and its home.

To add a client, add its script to `clients/`, its home to `HOMES` if its packages conflict
with the lock, and its rows to `ROWS`. `./dev clients` installs the homes and runs the rows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from offbook.files import copy_atomic
from offbook.sources.playbook import Role, Turn, call, role, say, when
from tests.matrix.homes import COMMANDS, HOMES, Home

SCRIPTS = Path(__file__).parent / "clients"
WHOLE = os.environ.get("OFFBOOK_MATRIX") == "whole"  # set by ./dev clients
SEALED = bool(os.environ.get("OFFBOOK_SEALED"))  # ./dev clients --sealed
PROMPT = "How is the weather in Paris?"
FINAL = "It is 21 degrees in Paris."


WEATHER = when(PROMPT, [call("get_weather", {"city": "Paris"}), say(FINAL)])
PLUGIN = when(PROMPT, [call("weather-get_weather", {"city": "Paris"}), say(FINAL)])
TEXT_ONLY = when(PROMPT, [say(FINAL)])
STRUCTURED = when(PROMPT, [say('{"city": "Paris", "degrees": 21}')])
FINAL_ANSWER = when(
    PROMPT,
    [
        call("get_weather", {"city": "Paris"}),
        call("final_answer", {"answer": FINAL}, unanswered=True),
    ],
)
CODE = when(PROMPT, [say("Look.\n<code>\nfinal_answer(get_weather(city='Paris'))\n</code>")])
ECHO = "echo 21 degrees in Paris"
SHELL = when(PROMPT, [call("Bash", {"command": ECHO}), say(FINAL)])
CODEX_SHELL = when(PROMPT, [call("exec_command", {"cmd": ECHO}), say(FINAL)])
GEMINI_SHELL = when(PROMPT, [call("run_shell_command", {"command": ECHO}), say(FINAL)])
OPENCODE_SHELL = when(PROMPT, [call("bash", {"command": ECHO}), say(FINAL)])
QWEN_SHELL = when(
    PROMPT,
    [call("run_shell_command", {"command": ECHO, "is_background": False}), say(FINAL)],
)
TOUCH = when(PROMPT, [call("Bash", {"command": f"touch it; {ECHO}"}), say(FINAL)])
END = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SUBMIT = f"{END}; echo '{FINAL}'"
MINI = when(
    PROMPT,
    [call("bash", {"command": ECHO}), call("bash", {"command": SUBMIT}, unanswered=True)],
)
MINI_TEXT = when(
    PROMPT, [say(f"Look.\n```mswea_bash_command\n{command}\n```") for command in (ECHO, SUBMIT)]
)
# The first answer does not pass aider's test.
EDITS = when(PROMPT, [say(f"weather.txt\n```\n{sky}\n```\n") for sky in ("rainy", "sunny")])
COMMITS = role("commits", [say("Guess"), say("Correct it")], system="commit message")
# The first object is not valid, and the second one ends the loop.
OBJECT = when(
    PROMPT,
    [
        call("Weather", {"city": "Paris", "degrees": "21 degrees in Paris"}, invalid=True),
        call("Weather", {"city": "Paris", "degrees": 21}, unanswered=True),
    ],
)
JSON_OBJECT = when(
    PROMPT,
    [
        say('{"city": "Paris", "degrees": "21 degrees in Paris"}'),
        say('{"city": "Paris", "degrees": 21}'),
    ],
)
# Streamed, an object is not asked for again.
PARTIAL_OBJECT = when(
    PROMPT, [call("PartialWeather", {"city": "Paris", "degrees": 21}, unanswered=True)]
)
SUBMITTED = when(
    PROMPT,
    [
        call("get_weather", {"city": "Paris"}),
        call("submit", {"answer": FINAL}, unanswered=True),
    ],
)


def _fields(**fields: str) -> str:
    """Return an answer in the format of DSPy."""
    texts = [f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items()]
    return "\n\n".join([*texts, "[[ ## completed ## ]]"])


REACT = when(
    PROMPT,
    [
        say(
            _fields(
                next_thought="Look.",
                next_tool_name="get_weather",
                next_tool_args='{"city": "Paris"}',
            )
        ),
        say(_fields(next_thought="Done.", next_tool_name="finish", next_tool_args="{}")),
        say(_fields(reasoning="It is known.", answer=FINAL)),
    ],
)
LLAMA_REACT = when(
    PROMPT,
    [
        say('Thought: Look.\nAction: get_weather\nAction Input: {"city": "Paris"}'),
        say(f"Thought: Done.\nAnswer: {FINAL}"),
    ],
)
EXECUTE = when(PROMPT, [call("execute", {"language": "shell", "code": ECHO}), say(FINAL)])
EXECUTE_TEXT = when(PROMPT, [say(f"Look.\n\n```shell\n{ECHO}\n```"), say(FINAL)])
# The result of a computer is an image, and the agent sends none of a hosted tool.
CLICK = {"type": "click", "x": 1, "y": 2, "button": "left"}
COMPUTER = when(PROMPT, [call("computer", CLICK), say(FINAL)])
HOSTED = when(PROMPT, [[call("web_search", {"query": "weather in Paris"}), say(FINAL)]])
NAMED_WEATHER = when(PROMPT, [call("Weather_get_weather", {"city": "Paris"}), say(FINAL)])
GPTME_SHELL = when(
    PROMPT, [say(f"Look.\n```shell\n{ECHO}\n```"), say(f"{FINAL}\n```complete\n```")]
)
# It sends the text of the page with its task; its actions are JSON.
BROWSER_ACTION = {"done": {"text": FINAL, "success": True}}
BROWSER_STATE = {"evaluation_previous_goal": "-", "memory": "-", "next_goal": "-"}
BROWSER = when(PROMPT, [say(json.dumps({**BROWSER_STATE, "action": [BROWSER_ACTION]}))])
MCP = when(PROMPT, [call("mcp__wx__get_weather", {"city": "Paris"}), say(FINAL)])


@dataclass(frozen=True)
class Row:
    """One run of one client."""

    client: str
    script: str
    variant: str
    stream: bool
    home_name: str = ""
    turn: Turn = WEATHER
    text: str = FINAL
    results_as_text: bool = False  # it sends tool results as text, not as tool results
    roles: tuple[Role, ...] = ()
    has_results: bool = True  # False: it sends no text of a tool
    lenient: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.client} {self.variant} {self.mode}"

    @property
    def mode(self) -> str:
        return "stream" if self.stream else "plain"

    @property
    def home(self) -> Home | None:
        """Return the home, or None for the environment of the checkout."""
        return HOMES[self.home_name] if self.home_name else None

    @property
    def command(self) -> list[str]:
        """Return the command that runs the script."""
        arguments = [self.variant, self.mode, "{prompt}"]
        home = self.home
        if home is not None and self.script.endswith(".mjs"):
            return ["node", str(home.folder / self.script), *arguments]
        python = sys.executable if home is None or home.npm else home.python
        return [python, str(SCRIPTS / self.script), *arguments]

    def copy_scripts(self) -> None:
        """Copy the Node scripts to the home, as Node resolves packages from the script's folder."""
        home = self.home
        if home is not None and self.script.endswith(".mjs"):
            for script in SCRIPTS.glob("*.mjs"):
                copy_atomic(script, home.folder / script.name)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variable that holds the npm prefix."""
        return {"PREFIX": str(self.home.folder)} if self.home and self.home.npm else {}


def _both(client: str, script: str, *variants: str, home_name: str = "") -> Iterator[Row]:
    for variant in variants:
        for stream in (False, True):
            yield Row(client, script, variant, stream, home_name)


ROWS = [
    *_both("openai", "openai_sdk.py", "chat", "responses", "previous"),
    Row("openai", "openai_sdk.py", "chat-helper", stream=True),
    Row("openai", "openai_sdk.py", "responses-helper", stream=True),
    Row("openai", "openai_sdk.py", "websocket", stream=True),
    Row("openai", "openai_sdk.py", "realtime", stream=True),
    *(
        Row(
            "openai",
            "openai_sdk.py",
            variant,
            stream=False,
            turn=STRUCTURED,
            text="Weather(city='Paris', degrees=21)",
        )
        for variant in ("chat-parse", "responses-parse")
    ),
    Row("openai", "openai_sdk.py", "misc", stream=False, turn=TEXT_ONLY),
    *_both("anthropic", "anthropic_sdk.py", "messages", "runner", "runner-nothread"),
    Row("anthropic", "anthropic_sdk.py", "helper", stream=True),
    Row(
        "anthropic",
        "anthropic_sdk.py",
        "parse",
        stream=False,
        turn=STRUCTURED,
        text="Weather(city='Paris', degrees=21)",
    ),
    Row("anthropic", "anthropic_sdk.py", "misc", stream=False, turn=TEXT_ONLY),
    *_both("google-genai", "genai_sdk.py", "auto"),
    Row("google-genai", "genai_sdk.py", "live", stream=True),
    Row("google-genai", "genai_sdk.py", "misc", stream=False, turn=TEXT_ONLY),
    *_both("pydantic-ai", "pydantic_agent.py", "chat", "responses", "anthropic", "google"),
    *_both("openai-agents", "agents_sdk.py", "chat", "responses"),
    *(
        Row("openai-agents", "agents_sdk.py", variant, stream, turn=turn, has_results=False)
        for variant, turn in (("computer", COMPUTER), ("hosted", HOSTED))
        for stream in (False, True)
    ),
    *_both("langchain", "langchain_agent.py", "chat", "responses", "anthropic"),
    Row("langchain", "langchain_agent.py", "embeddings", stream=False, turn=TEXT_ONLY),
    *(
        Row(
            "smolagents",
            "smolagents_agent.py",
            "tool",
            stream,
            turn=FINAL_ANSWER,
            results_as_text=True,
        )
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
        "litellm",
        "litellm_loop.py",
        "openai",
        "responses",
        "anthropic",
        "gemini",
        home_name="litellm",
    ),
    Row(
        "litellm", "litellm_loop.py", "embedding", stream=False, home_name="litellm", turn=TEXT_ONLY
    ),
    *(
        Row("inspect", "inspect_task.py", variant, variant == "anthropic", home_name="inspect")
        for variant in ("openai", "openai-api", "responses", "anthropic", "google", "mcp")
    ),
    *(
        Row("claude-agent-sdk", "claude_agent.py", variant, True, "claude-agent-sdk", turn)
        for variant, turn in (("bash", SHELL), ("permission", TOUCH), ("mcp", MCP))
    ),
    *(
        Row("commands", "commands.py", variant, stream=True, home_name=COMMANDS, turn=turn)
        for variant, turn in (
            ("codex", CODEX_SHELL),
            ("codex-websocket", CODEX_SHELL),
            ("claude", SHELL),
            ("claude-bare", SHELL),
            ("gemini", GEMINI_SHELL),
            ("gemini-router", GEMINI_SHELL),
        )
    ),
    *(
        Row("opencode", "opencode_cli.py", variant, True, "opencode", OPENCODE_SHELL)
        for variant in ("compatible", "title", "responses", "anthropic", "google")
    ),
    *(
        Row("qwen-code", "qwen_cli.py", variant, True, "qwen", QWEN_SHELL)
        for variant in ("chat", "responses", "anthropic", "google")
    ),
    *(
        Row("continue", "continue_cli.py", variant, True, "cn", SHELL)
        for variant in ("chat", "anthropic", "google")
    ),
    *_both(
        "openai 2 (httpx)", "openai_sdk.py", "chat", "responses", "previous", home_name="strands"
    ),
    *_both("anthropic 0 (httpx)", "anthropic_sdk.py", "messages", home_name="strands"),
    *_both("google-genai 2", "genai_sdk.py", "auto", home_name="adk"),
    *_both("google-adk", "adk_agent.py", "gemini", home_name="adk"),
    *_both("crewai", "crewai_agent.py", "chat", home_name="openai-2"),
    *_both("llama-index", "llama_index_agent.py", "chat", "responses", home_name="openai-2"),
    *_both("autogen", "autogen_agent.py", "agent", "team", home_name="openai-3"),
    *_both("haystack", "haystack_agent.py", "chat", "responses", home_name="openai-3"),
    *_both("agno", "agno_agent.py", "chat", "responses", home_name="openai-3"),
    *_both(
        "agent-framework", "agent_framework_agent.py", "chat", "responses", home_name="openai-3"
    ),
    *_both("ag2", "ag2_agent.py", "chat", "responses", home_name="openai-3"),
    *(
        Row("semantic-kernel", "semantic_kernel_agent.py", variant, stream, "openai-3", PLUGIN)
        for variant in ("chat", "responses")
        for stream in (False, True)
    ),
    *(
        Row(
            "llama-index",
            "llama_index_agent.py",
            "react",
            stream,
            "openai-2",
            LLAMA_REACT,
            FINAL,
            True,
        )
        for stream in (False, True)
    ),
    *(
        Row(
            "instructor",
            "instructor_call.py",
            variant,
            stream,
            "openai-2",
            turn,
            "Paris: 21",
            as_text,
        )
        for variant, stream, turn, as_text in (
            ("tools", False, OBJECT, False),
            ("tools", True, PARTIAL_OBJECT, False),
            ("json", False, JSON_OBJECT, True),
            ("json", True, STRUCTURED, False),
        )
    ),
    *(
        Row("dspy", "dspy_module.py", variant, stream, "litellm", turn, FINAL, as_text)
        for variant, turn, as_text in (("native", SUBMITTED, False), ("text", REACT, True))
        for stream in (False, True)
    ),
    *(
        Row(
            "aider",
            "aider_command.py",
            "whole",
            stream,
            "aider",
            EDITS,
            "Correct it: sunny",
            True,
            (COMMITS,),
            lenient=("history",),  # it writes answers of its own, and moves its files
        )
        for stream in (False, True)
    ),
    *(
        Row(
            "mini-swe-agent",
            "mini_command.py",
            variant,
            False,
            "litellm",
            turn,
            FINAL,
            turn is MINI_TEXT,
        )
        for variant, turn in (("chat", MINI), ("responses", MINI), ("text", MINI_TEXT))
    ),
    *(
        Row(
            "open-interpreter",
            "interpreter_command.py",
            variant,
            True,
            "open-interpreter",
            turn,
            FINAL,
            turn is EXECUTE_TEXT,
        )
        for variant, turn in (("function", EXECUTE), ("text", EXECUTE_TEXT))
    ),
    Row("shell-gpt", "shell_gpt_command.py", "functions", True, "shell-gpt"),
    # Its host is in its code.
    *(
        Row("gptme", "gptme_command.py", "groq", stream, "gptme", GPTME_SHELL, FINAL, True)
        for stream in (False, True)
    ),
    *(
        Row("griptape", "griptape_agent.py", "chat", stream, "griptape", NAMED_WEATHER)
        for stream in (False, True)
    ),
    *(
        Row("atomic-agents", "atomic_agent.py", "tools", stream, "atomic-agents", turn, "Paris: 21")
        for stream, turn in ((False, OBJECT), (True, PARTIAL_OBJECT))
    ),
    *(
        Row("livekit", "livekit_agent.py", variant, True, "livekit", lenient=lenient)
        # It continues a response, and sends the call of that response again.
        for variant, lenient in (("chat", ()), ("responses", ("duplicate_id", "history")))
    ),
    Row("pipecat", "pipecat_agent.py", "chat", stream=True, home_name="pipecat"),
    *(
        # It adds the name of the tool to the arguments of a call.
        Row("langroid", "langroid_agent.py", "tools", stream, "langroid", lenient=("history",))
        for stream in (False, True)
    ),
    *_both("camel", "camel_agent.py", "chat", home_name="camel"),
    Row("browser-use", "browser_use_agent.py", "page", False, "browser-use", BROWSER, FINAL, True),
    *_both("ollama", "ollama_sdk.py", "chat", home_name="providers"),
    *(
        Row("ollama", "ollama_sdk.py", "generate", stream, "providers", TEXT_ONLY)
        for stream in (False, True)
    ),
    *_both("cohere", "cohere_sdk.py", "chat", "documents", home_name="providers"),
    Row("cohere", "cohere_sdk.py", "misc", False, "providers", TEXT_ONLY),
    *_both("AnthropicBedrock", "anthropic_sdk.py", "bedrock", home_name="providers"),
    *_both("mistral", "mistral_sdk.py", "chat", home_name="providers"),
    *_both(
        "compatible",
        "compatible_sdk.py",
        "groq",
        "together",
        "portkey-ai",
        "openrouter",
        home_name="providers",
    ),
    *_both("node ollama", "ollama.mjs", "chat", home_name="node-providers"),
    *_both("mirascope", "mirascope_call.py", "completions", "responses", home_name="openai-2"),
    *_both("strands", "strands_agent.py", "openai", home_name="strands"),
    Row("strands", "strands_agent.py", "anthropic", stream=True, home_name="strands"),
    *_both("node openai", "openai.mjs", "chat", "responses", home_name="node"),
    *_both("node anthropic", "anthropic.mjs", "messages", home_name="node"),
    *_both("node google-genai", "genai.mjs", "generate", home_name="node"),
    *_both(
        "ai sdk",
        "ai.mjs",
        "chat",
        "responses",
        "compatible",
        "anthropic",
        "google",
        home_name="node",
    ),
    *_both("@openai/agents", "agents.mjs", "chat", "responses", home_name="node-agents"),
    *_both("mastra", "mastra.mjs", "chat", "anthropic", "google", home_name="node-agents"),
    *_both("genkit", "genkit.mjs", "openai", "google", "anthropic", home_name="node-agents"),
    Row("llamaindex.ts", "llamaindex.mjs", "agent", stream=True, home_name="node-agents"),
    Row("llamaindex.ts", "llamaindex.mjs", "exec", stream=False, home_name="node-agents"),
    *(
        Row("node claude-agent-sdk", "claude_agent.mjs", variant, True, "node-agents", turn)
        for variant, turn in (("bash", SHELL), ("mcp", MCP))
    ),
    *_both(
        "langgraph.js", "langgraph.mjs", "chat", "responses", "anthropic", home_name="langchain-js"
    ),
    *_both(
        "langchain.js", "langchain.mjs", "chat", "responses", "anthropic", home_name="langchain-js"
    ),
]
