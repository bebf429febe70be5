"""Published agents, unchanged: what a search of one minute finds, and whether its test is red.

    python -m tests.matrix.install published adk    # once
    ./dev bench explore_published
    AGENTS=weather,deepagents ./dev bench explore_published

The worlds are in `tests/matrix/published/worlds`. Each search runs in the home of its agent,
with the defaults and seed 0, behind a proxy on loopback that counts connections. It exits with 1 if
there is one, if a search ends with an error, or if the saved test of a finding is not red.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.matrix.homes import HOMES, ROOT
from tests.matrix.loopback_proxy import start_proxy

PROMPTS = {
    "bank_support": "What is my balance?",
    "weather": "How is the weather in London?",
    "roulette_wheel": "Play",
    "flight_booking": "Book a flight",
    "medical_triage": "Sudden severe chest pain",
    "sql_gen": "Show me the errors",
    "langchain_sql": "Which lamp has more than 20 watts?",
    "deepagents": "Write about tea",
    "llm_command": "Find order 7",
    "agent_builder": "Keep a note",
}
KEYS = ("OPENAI_API_KEY", "GROQ_API_KEY", "GEMINI_API_KEY")
SAVED = "test_found.py"


def run(python: str, *words: str, folder: str, proxy: dict[str, str]) -> str:
    """Run a module in a home, and return what it prints."""
    environment = {**os.environ, **dict.fromkeys(KEYS, "none"), **proxy}
    environment["PYTHONPATH"] = str(ROOT / "tests" / "matrix" / "published" / "worlds")
    command = [python, "-m", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout or done.stderr[-2000:]


def search(name: str, proxy: dict[str, str]) -> bool:
    """Print what a search finds; return whether all went well."""
    python = HOMES["adk" if name == "agent_builder" else "published"].python
    with tempfile.TemporaryDirectory() as folder:
        words = ("offbook", "explore", f"{name}_world:world", PROMPTS[name], "--minutes", "1")
        text = run(python, *words, "--save", SAVED, "--json", folder=folder, proxy=proxy)
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            print(f"{name}: {text}")
            return False
        print(f"{name}: {found['behaviours']} behaviours, {found['states']} states")
        for what in ("gave_up", "never_called", "never_succeeded", "slow", "notes", "attacks"):
            if found[what]:
                print(f"  {what}: {found[what]}")
        for finding in found["findings"]:
            times = "" if finding["repeats"] else ", does not repeat"
            print(f"  {finding['invariant']}: {finding['message']}{times}\n{finding['script']}")
        saved = sum(finding["repeats"] for finding in found["findings"])
        if saved:
            shown = run(python, "pytest", "-q", "--tb=no", SAVED, folder=folder, proxy=proxy)
            is_red = f"{saved} failed" in shown and " passed" not in shown
            print(f"  saved test: {'red' if is_red else shown}", flush=True)
            return is_red
    return bool(found["complete"])


def main() -> int:
    """Search the agents; return 1 if something went wrong."""
    names = os.environ.get("AGENTS", ",".join(PROMPTS)).split(",")
    with start_proxy() as proxy:
        good = [search(name, proxy.environment) for name in names]
    print(f"connections: {proxy.targets or 'none'}")
    return 0 if all(good) and not proxy.targets else 1


if __name__ == "__main__":
    sys.exit(main())
