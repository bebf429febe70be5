"""`offbook init` writes a test that passes, and that fails for a broken agent."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.forked import run_python
from tests.surfaces.conftest import Offbook

AGENTS = {
    "pydantic-ai": """
from pydantic_ai import Agent

support = Agent("openai:gpt-5")

@support.tool_plain
def find_order(id: int) -> str:
    return "a kettle"
""",
    "OpenAI Agents": """
from agents import Agent

support = Agent(name="support", instructions="Be kind.")
""",
    "LangGraph": """
from langchain.agents import create_agent

support = create_agent("openai:gpt-5", tools=[])
""",
    "OpenAI SDK": """
import openai

def support(prompt):
    client = openai.OpenAI()
    reply = client.chat.completions.create(
        model="gpt-5", messages=[{"role": "user", "content": prompt}]
    )
    return reply.choices[0].message.content
""",
}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.endswith("_API_KEY"):
            monkeypatch.delenv(name)


def run_pytest(folder: Path, *imports: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder, imports=imports)


def test_an_empty_folder_gets_a_passing_example(offbook_command: Offbook, tmp_path: Path):
    result = offbook_command("init", tmp_path, "--no-run")
    assert result.code == 0
    assert "wrote test_shop.py" in result.out
    assert "1 passed" in run_pytest(tmp_path).stdout


def test_a_broken_agent_fails_the_example(offbook_command: Offbook, tmp_path: Path):
    offbook_command("init", tmp_path, "--no-run")
    shop = tmp_path / "shop.py"
    shop.write_text(shop.read_text().replace('params["id"] not in self.found', "False"))
    result = run_pytest(tmp_path)
    assert result.returncode == 1
    assert "assert [7] == []" in result.stdout
    assert "→ refunded order 7" in result.stdout  # from the trace


IMPORTS = {
    "pydantic-ai": ("pydantic_ai", "pydantic_ai.models.openai"),
    "OpenAI Agents": ("agents",),
    "LangGraph": ("langchain.agents", "langchain_openai"),
    "OpenAI SDK": ("openai",),
}


@pytest.mark.slow
@pytest.mark.parametrize("framework", AGENTS)
def test_a_framework_agent_gets_a_passing_test(
    offbook_command: Offbook, tmp_path: Path, framework: str
):
    (tmp_path / "bot.py").write_text(AGENTS[framework])
    result = offbook_command("init", tmp_path, "--json", "--no-run")
    assert json.loads(result.out)["agents"][0]["framework"] == framework
    assert result.code == 0
    assert "1 passed" in run_pytest(tmp_path, *IMPORTS[framework]).stdout


@pytest.mark.slow
def test_the_written_test_is_run_and_its_result_reported(offbook_command: Offbook, tmp_path: Path):
    (tmp_path / "bot.py").write_text(AGENTS["OpenAI SDK"])
    result = offbook_command("init", tmp_path, "--json")
    assert json.loads(result.out)["passed"] is True
    assert result.code == 0


@pytest.mark.slow
def test_a_failing_test_exits_with_1(offbook_command: Offbook, tmp_path: Path):
    (tmp_path / "bot.py").write_text("raise RuntimeError\n" + AGENTS["OpenAI SDK"])
    result = offbook_command("init", tmp_path, "--json")
    assert json.loads(result.out)["passed"] is False
    assert result.code == 1


def test_an_existing_file_is_not_overwritten(offbook_command: Offbook, tmp_path: Path):
    (tmp_path / "test_shop.py").write_text("mine")
    result = offbook_command("init", tmp_path)
    assert result.code == 2
    assert "test_shop.py: file exists already" in result.err
    assert not (tmp_path / "shop.py").exists()
    assert (tmp_path / "test_shop.py").read_text() == "mine"


def test_a_detected_client_is_suggested(offbook_command: Offbook, tmp_path: Path):
    (tmp_path / "CLAUDE.md").touch()
    assert "offbook.drive(ClaudeCode())" in offbook_command("init", tmp_path, "--no-run").out
