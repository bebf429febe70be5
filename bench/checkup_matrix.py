"""The check-up over the frameworks and command-line agents of the matrix.

python bench/checkup_matrix.py run [CLIENT…] [SCENARIO…]    play it, and store the outcomes
python bench/checkup_matrix.py page    write docs/reference/checkup-frameworks.md

The agents are the scripts of tests/matrix/clients, in the homes that `./dev clients` installs. A
script in Python runs in the process of the check-up; others are commands, for which a part of the
list is played, because each run starts a program.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import runpy
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

STORED = ROOT / "bench" / "checkup_matrix.jsonl"
PAGE = ROOT / "docs" / "reference" / "checkup-frameworks.md"
TRACES = Path(os.environ.get("CHECKUP_TRACES", ROOT / ".offbook" / "checkup-matrix"))
DEADLINE = 120.0  # seconds: a machine may be busy
CLI = "cli"
RULES = 2  # raised when the rules change, so that the page can name the older rows
PROMPT = "How is the weather in Paris?"

# The row of the matrix for each agent: client, variant, mode.
AGENTS = [
    ("openai", "chat", "plain"),
    ("openai", "responses-helper", "stream"),
    ("anthropic", "messages", "plain"),
    ("anthropic", "runner", "stream"),
    ("google-genai", "auto", "plain"),
    ("pydantic-ai", "chat", "plain"),
    ("pydantic-ai", "anthropic", "stream"),
    ("openai-agents", "chat", "plain"),
    ("openai-agents", "responses", "stream"),
    ("langchain", "chat", "plain"),
    ("langchain", "anthropic", "stream"),
    ("smolagents", "tool", "plain"),
    ("litellm", "openai", "plain"),
    ("inspect", "openai", "plain"),
    ("crewai", "chat", "plain"),
    ("llama-index", "chat", "plain"),
    ("mirascope", "completions", "plain"),
    ("autogen", "agent", "plain"),
    ("haystack", "chat", "plain"),
    ("agno", "chat", "plain"),
    ("agent-framework", "chat", "plain"),
    ("ag2", "chat", "plain"),
    ("semantic-kernel", "chat", "plain"),
    ("google-adk", "gemini", "plain"),
    ("strands", "openai", "stream"),
    ("ai sdk", "chat", "plain"),
    ("@openai/agents", "chat", "plain"),
    ("mastra", "chat", "plain"),
    ("genkit", "openai", "plain"),
    ("claude-agent-sdk", "bash", "stream"),
    ("Codex", "cli", "stream"),
    ("ClaudeCode", "cli", "stream"),
    ("GeminiCli", "cli", "stream"),
    ("QwenCode", "cli", "stream"),
    ("OpenCode", "cli", "stream"),
    ("Continue", "cli", "stream"),
]
# A part of the list for each kind of trouble: the whole list takes minutes for each row.
PLAYED = [
    "baseline/answer", "baseline/call", "calls/unknown-tool", "calls/other-case",
    "calls/missing-parameter", "calls/number-for-text", "calls/cut-json", "calls/json-list",
    "calls/extra-parameter", "parallel/two-equal", "parallel/one-unknown", "replies/empty",
    "replies/refusal", "replies/cut-by-length", "replies/call-as-text", "provider/401",
    "provider/429-retry-after", "provider/500-once", "provider/500-always",
    "provider/500-after-tool", "provider/reset", "provider/html-page", "streams/reset",
    "streams/no-end", "streams/duplicate", "context/thirty-calls", "cancellation/sigint",
]  # fmt: skip
# Without the scenarios that show the same as another, for commands that take seconds to start.
COMMANDS = [
    "baseline/answer", "baseline/call", "calls/unknown-tool", "calls/missing-parameter",
    "calls/cut-json", "parallel/two-equal", "replies/empty", "replies/refusal",
    "replies/cut-by-length", "provider/401", "provider/500-once", "provider/reset",
    "streams/no-end", "cancellation/sigint",
]  # fmt: skip


def find_row(client: str, variant: str, mode: str) -> Any:
    """Return the row of the matrix; None for a command-line agent, which Offbook knows."""
    from tests.matrix.rows import ROWS

    if variant == CLI:
        return None
    rows = [r for r in ROWS if (r.client, r.variant, r.mode) == (client, variant, mode)]
    if not rows:
        raise SystemExit(f"no row of the matrix: {client} {variant} {mode}")
    return rows[0]


def is_in_process(row: Any) -> bool:
    """Return whether the script of a row runs in the process of the check-up."""
    return row is not None and row.script.endswith(".py") and (row.home is None or not row.home.npm)


def find_command(row: Any) -> list[str]:
    """Return the command of a row. The scripts for Node run beside a link to the packages."""
    if not row.script.endswith(".mjs"):
        return row.command
    folder = TRACES / "scripts" / row.home.name
    folder.mkdir(parents=True, exist_ok=True)
    packages = folder / "node_modules"
    if not packages.exists():
        packages.symlink_to(row.home.folder / "node_modules")
    for script in (ROOT / "tests" / "matrix" / "clients").glob("*.mjs"):
        (folder / script.name).write_bytes(script.read_bytes())
    return ["node", str(folder / row.script), *row.command[2:]]


def read_text(output: str) -> str:
    """Return the answer in the last line of a script."""
    for line in reversed(output.splitlines()):
        if line.startswith('{"text"'):
            return str(json.loads(line)["text"] or "")
    return output.strip()


def run_script(path: Path, variant: str, mode: str, prompt: str) -> str:
    """Run a script of the matrix in this process, and return its answer."""
    sys.argv = [str(path), variant, mode, prompt]
    sys.modules.pop("harness", None)  # it reads the arguments
    output = io.StringIO()
    with redirect_stdout(output):
        runpy.run_path(str(path), run_name="__main__")
    return read_text(output.getvalue())


# --- In the interpreter of a home


def make_target(client: str, row: Any) -> Any:
    """Return the agent of a row for a check-up."""
    from offbook import clis, drive

    if row is None:
        options = {"retries": 4} if client == "Codex" else {}  # its own default; Offbook's is 0
        return lambda: drive(getattr(clis, client)(deadline=DEADLINE, **options))
    if not is_in_process(row):
        from offbook.subjects.clis.cli import AgentOutput
        from offbook.subjects.clis.clients import Command

        class MatrixCommand(Command):
            def parse_output(self, stdout: str, events: Any) -> AgentOutput:  # noqa: ARG002
                return AgentOutput(read_text(stdout))

        environment = {**row.environment, "RETRIES": "2"}
        return lambda: drive(
            MatrixCommand(find_command(row), name=row.client, env=environment, deadline=DEADLINE)
        )
    script = ROOT / "tests" / "matrix" / "clients" / row.script
    sys.path.insert(0, str(script.parent))
    os.environ["RETRIES"] = "2"

    def agent(prompt: str) -> str:
        return run_script(script, row.variant, row.mode, prompt)

    return lambda: drive(agent, serve=True)


def play(number: int, only: list[str]) -> None:
    """Play the check-up of a row, and print its outcomes as a line of JSON."""
    from offbook.checkup.checkup_run import GRACE, run_checkup
    from offbook.checkup.scenarios import select

    client, variant, mode = AGENTS[number]
    row = find_row(client, variant, mode)
    names = only or (PLAYED if is_in_process(row) else COMMANDS)
    folder = TRACES / f"{client} {variant}".replace("/", "-").replace(" ", "-")
    found = run_checkup(
        make_target(client, row),
        PROMPT,
        select(names),
        name=client,
        folder=folder,
        deadline=DEADLINE + GRACE,
    )
    rows = {r.id: [r.outcome, without_paths(r.reason)] for r in found.results}
    line = {"client": client, "variant": variant, "mode": mode, "rules": RULES, "outcomes": rows}
    print(json.dumps(line))


def without_paths(text: str) -> str:
    """Return a text without the folders of this machine."""
    clients = os.environ.get("OFFBOOK_CLIENTS", str(ROOT / ".clients"))
    for folder, name in ((str(TRACES), "traces"), (clients, ".clients"), (f"{ROOT}/", "")):
        text = text.replace(folder, name)
    return text


# --- All rows


def run_all(words: list[str]) -> None:
    """Play the check-up of these clients, each in its own interpreter, and store the outcomes."""
    only = [word for word in words if word in PLAYED]
    clients = [word for word in words if word not in PLAYED]
    for number, (client, variant, mode) in enumerate(AGENTS):
        if clients and not {client, f"{client} {variant}"} & {*clients}:
            continue
        row = find_row(client, variant, mode)
        home = None if row is None else row.home
        python = sys.executable
        if home is not None:
            if not home.folder.is_dir():
                print(f"{client}: not installed: run ./dev clients", file=sys.stderr)
                continue
            python = home.python if is_in_process(row) else sys.executable
        began = time.monotonic()
        command = [python, str(Path(__file__).resolve()), "play", str(number), *only]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"client"')]
        seconds = time.monotonic() - began
        if not lines:
            print(f"{client} {variant}: {done.stderr[-600:]}", file=sys.stderr)
            continue
        store(json.loads(lines[-1]))
        print(f"{client} {variant} {mode}: {seconds:.0f} s", flush=True)


def store(line: dict[str, Any]) -> None:
    """Replace the stored outcomes of a row."""
    with STORED.open("a") as file:  # several of these may run side by side
        fcntl.flock(file, fcntl.LOCK_EX)
        _replace(line)


def _replace(line: dict[str, Any]) -> None:
    key = [line[name] for name in ("client", "variant", "mode")]
    read = read_stored()
    stored = [entry for entry in read if "outcomes" in entry]
    for entry in stored:  # a part of the list replaces this part only
        if [entry[n] for n in ("client", "variant", "mode")] == key:
            if entry["outcomes"].keys() - line["outcomes"].keys():
                line["rules"] = entry.get("rules", 1)
            line["outcomes"] = {**entry["outcomes"], **line["outcomes"]}
    kept = [e for e in stored if [e[n] for n in ("client", "variant", "mode")] != key]
    order = {agent: number for number, agent in enumerate(AGENTS)}
    rows = sorted([*kept, line], key=lambda e: order[e["client"], e["variant"], e["mode"]])
    rows += [entry for entry in read if "shown" in entry]
    STORED.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def read_stored() -> list[dict[str, Any]]:
    """Return the stored outcomes."""
    if not STORED.is_file():
        return []
    return [json.loads(line) for line in STORED.read_text("utf-8").splitlines()]


# --- The page

NOTE = "<!-- Generated by bench/checkup_matrix.py from a run: `run`, then `page`. -->\n\n"
# The names of agents on the page, where they are not those of the clients.
LABELS = {
    "openai chat": "OpenAI SDK, a loop by hand",
    "openai responses-helper": "OpenAI SDK, `responses.stream` in a loop by hand",
    "anthropic messages": "Anthropic SDK, a loop by hand",
    "anthropic runner": "Anthropic SDK, tool runner",
    "google-genai auto": "Google Gen AI SDK, automatic calls",
    "litellm openai": "LiteLLM, a loop by hand",
    "mirascope completions": "Mirascope",
    "Codex cli": "Codex",
    "ClaudeCode cli": "Claude Code",
    "GeminiCli cli": "Gemini CLI",
    "QwenCode cli": "Qwen Code",
    "OpenCode cli": "OpenCode",
    "Continue cli": "Continue",
    "ai sdk chat": "AI SDK (Node)",
    "@openai/agents chat": "OpenAI Agents (Node)",
    "mastra chat": "Mastra (Node)",
    "genkit openai": "Genkit (Node)",
}
OUTCOMES = ("survived", "degraded", "broke", "unknown")
ABOUT = """\
A part of the list of [`offbook checkup`](../guides/checkup.md), {played} of the \
[scenarios](checkup.md), against {agents} agents of the client matrix; of those that are commands, \
{commands}. The agents are the scripts in `tests/matrix/clients`: one tool, and what the framework \
does by itself. *A loop by hand* is the code of such a script, which handles no error at all: it \
shows what an SDK alone does, and what a loop must do.

Survived, degraded, broke and unknown are numbers of scenarios. A framework that ends with an \
exception of its own, where a retry or a second try of the model would have led to an answer, is \
degraded. Unknown is mostly a stream, for an agent that does not stream, or a signal, for one that \
is no command. A scenario that takes longer than two minutes counts as a hang."""
OLDER = """\
Measured with older rules: {agents}. In these rows, an agent that ended with words of its own \
after an error survived, one that reported a cut reply was degraded, a call without a result was \
not always seen, and streams broke in a shorter text."""
# What the reader may not expect: an agent, a scenario, and the reason.
EXPLAINED = [
    (
        "langchain chat",
        "calls/cut-json",
        """\
The model writes arguments that are not JSON. LangChain moves the call to `invalid_tool_calls` of \
the message, so the message has no call, and for `create_agent` a message without a call is the \
answer. The run ends without an exception, and its answer is an empty text. A middleware that \
looks at `invalid_tool_calls`, and sends the error back to the model, prevents it.""",
    ),
    (
        "google-genai auto",
        "context/thirty-calls",
        """\
Automatic function calling ends after ten requests. There is no exception then: the response is \
the last call of the model, and `response.text` is None. Nine results are used, and the user gets \
an empty answer. Look at `response.function_calls` before `response.text`, or raise \
`maximum_remote_calls`.""",
    ),
    (
        "openai responses-helper",
        "replies/cut-by-length",
        """\
A reply that reaches the token limit ends with the event `response.incomplete`. The helper \
`responses.stream` waits for `response.completed` only: `get_final_response` raises a plain \
`RuntimeError`, which `except openai.OpenAIError` does not catch, and the text that has arrived is \
lost.""",
    ),
]


def name_agent(line: dict[str, Any]) -> str:
    """Return the client and the variant of a row."""
    return f"{line['client']} {line['variant']}"


def label(line: dict[str, Any]) -> str:
    """Return the name of an agent on the page."""
    key = name_agent(line)
    stream = ", streamed" if line["mode"] == "stream" and key not in LABELS else ""
    return LABELS.get(key, f"{line['client']}, {line['variant']}{stream}")


def render_page(lines: list[dict[str, Any]]) -> str:
    """Return the page of the stored outcomes."""
    rows = [line for line in lines if "outcomes" in line]
    shown = {(line["agent"], line["scenario"]): line["shown"] for line in lines if "shown" in line}
    older = [label(line) for line in rows if line.get("rules") != RULES]
    text = [
        "# Check-up of frameworks and command-line agents",
        "",
        ABOUT.format(played=len(PLAYED), agents=len(rows), commands=len(COMMANDS)),
        "",
        *([OLDER.format(agents="; ".join(older)), ""] if older else []),
        "| agent | " + " | ".join(OUTCOMES) + " | what broke, *what degraded* |",
        "|---|" + "---|" * 5,
    ]
    for line in rows:
        found = line["outcomes"]
        counts = [sum(o == outcome for o, _ in found.values()) for outcome in OUTCOMES]
        names = [f"`{name}`" for name, (outcome, _) in found.items() if outcome == "broke"]
        names += [f"*`{name}`*" for name, (outcome, _) in found.items() if outcome == "degraded"]
        cells = " | ".join(map(str, counts))
        text.append(f"| {label(line)} | {cells} | {', '.join(names) or 'nothing'} |")
    text += ["", "## By scenario", "", "| scenario | " + " | ".join(OUTCOMES[:3]) + " |"]
    text.append("|---|---|---|---|")
    for name in PLAYED:
        played = [line["outcomes"][name][0] for line in rows if name in line["outcomes"]]
        text.append(
            f"| `{name}` | " + " | ".join(str(played.count(o)) for o in OUTCOMES[:3]) + " |"
        )
    if EXPLAINED:
        text += ["", "## Three rows that surprise"]
    for agent, scenario, reason in EXPLAINED:
        title = next(label(line) for line in rows if name_agent(line) == agent)
        text += ["", f"### {title}: `{scenario}`", "", reason, ""]
        text += ["```text", shown.get((agent, scenario), "").strip(), "```"]
    return NOTE + "\n".join(text) + "\n"


def store_traces() -> None:
    """Store the traces that the page shows, as `offbook show` prints them.

    Of an agent that was not played here, the stored one is kept.
    """
    lines = read_stored()
    kept = [line for line in lines if "outcomes" in line]
    for agent, scenario, _ in EXPLAINED:
        trace = TRACES / agent.replace("/", "-").replace(" ", "-") / f"{scenario}.jsonl"
        if not trace.exists():
            kept += [e for e in lines if (e.get("agent"), e.get("scenario")) == (agent, scenario)]
            continue
        command = [sys.executable, "-m", "offbook", "show", str(trace)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        text = without_paths(done.stdout)
        kept.append({"agent": agent, "scenario": scenario, "shown": text})
    STORED.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept), "utf-8")


def main() -> None:
    """Do what the arguments say."""
    action, *words = sys.argv[1:] or ["help"]
    if action == "play":
        play(int(words[0]), words[1:])
    elif action == "run":
        run_all(words)
    elif action == "page":
        if TRACES.is_dir():
            store_traces()
        PAGE.write_text(render_page(read_stored()), "utf-8")
    else:
        print(__doc__)


if __name__ == "__main__":
    main()
