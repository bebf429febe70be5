"""The scan of a project finds what can be driven, without importing it."""

from pathlib import Path

import pytest

from offbook.explore import scan_project

FOUND = {
    "pydantic-ai": (
        "from pydantic_ai import Agent\nsupport = Agent('openai:gpt-5')\n",
        ("agent", "support", 2),
    ),
    "pydantic-ai, annotated and parametrised": (
        "import pydantic_ai\n\nbot: object = pydantic_ai.Agent[None, str]('openai:gpt-5')\n",
        ("agent", "bot", 3),
    ),
    "OpenAI Agents under another name": (
        "from agents import Agent as A\n\ntriage = A(name='triage')\n",
        ("agent", "triage", 3),
    ),
    "LangChain": (
        "from langchain.agents import create_agent\ngraph = create_agent('openai:gpt-5', [])\n",
        ("agent", "graph", 2),
    ),
    "a compiled graph": (
        "from langgraph.graph import StateGraph\nb = StateGraph(dict)\napp = b.compile()\n",
        ("agent", "app", 3),
    ),
    "an agent that a function returns": (
        "from pydantic_ai import Agent\ndef make():\n    a = Agent('openai:gpt-5')\n    return a\n",
        ("factory", "make", 2),
    ),
    "an agent that a method returns": (
        "from agents import Agent\nclass Team:\n    def lead(self):\n        return Agent('a')\n",
        ("factory", "Team.lead", 3),
    ),
    "a function of the prompt": (
        "from openai import OpenAI\n\n\ndef ask(prompt: str, model='gpt-5'):\n    OpenAI()\n",
        ("function", "ask", 4),
    ),
    "an async function of the question": (
        "import anthropic\n\n\nasync def answer(question):\n    anthropic.Anthropic()\n",
        ("function", "answer", 4),
    ),
    "a function of two arguments": (
        "import openai\ndef ask(user, prompt):\n    openai.OpenAI()\n",
        ("function", "ask", 2),
    ),
    "a method of a class with a client": (
        (
            "import openai\nclass Bot:\n    def __init__(self):\n        self.c = openai.OpenAI()\n"
            "    def chat(self, message):\n        return self.c\n"
        ),
        ("method", "Bot.chat", 5),
    ),
    "a function that posts to a provider": (
        "import requests\ndef ask(prompt):\n    requests.post('https://api.openai.com/v1/chat')\n",
        ("function", "ask", 2),
    ),
    "a route": (
        (
            "import openai\nfrom fastapi import FastAPI\napp = FastAPI()\n@app.post('/chat')\n"
            "def chat(body: dict):\n    openai.OpenAI()\n"
        ),
        ("route", "chat", 5),
    ),
    "a route in a function": (
        (
            "import openai\nfrom flask import Flask\ndef create_app():\n    app = Flask('a')\n"
            "    @app.route('/chat', methods=['POST'])\n    def chat():\n        openai.OpenAI()\n"
        ),
        ("route", "chat", 6),
    ),
    "a click command": (
        "import click, openai\n@click.command()\ndef main():\n    openai.OpenAI()\n",
        ("cli", "main", 3),
    ),
}

NOT_FOUND = {
    "another library's Agent": "from elsewhere import Agent\nagent = Agent()\n",
    "a private function": "import openai\ndef _ask(prompt):\n    openai.OpenAI()\n",
    "a function without an SDK": "def ask(prompt):\n    return prompt\n",
    "a function beside a client": "import openai\ndef find(query):\n    return query\n",
    "a route without a model": (
        "from fastapi import FastAPI\napp = FastAPI()\n@app.get('/up')\ndef up():\n    pass\n"
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_an_agent_is_found(tmp_path: Path, name: str):
    text, expected = FOUND[name]
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "agent.py").write_text(text)
    best = scan_project(tmp_path).candidates[0]
    module, _, label = best.target.partition(":")
    assert (best.kind, label, best.line) == expected
    assert module == "app.agent"


@pytest.mark.parametrize("name", NOT_FOUND)
def test_other_code_is_not_taken_for_an_agent(tmp_path: Path, name: str):
    (tmp_path / "agent.py").write_text(NOT_FOUND[name])
    assert scan_project(tmp_path).candidates == []


@pytest.mark.parametrize("folder", ["node_modules", ".venv", "tests", "build"])
def test_a_folder_of_other_code_is_skipped(tmp_path: Path, folder: str):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "agent.py").write_text(FOUND["pydantic-ai"][0])
    assert scan_project(tmp_path).candidates == []


def test_a_virtual_environment_of_any_name_is_skipped(tmp_path: Path):
    (tmp_path / "env39").mkdir()
    (tmp_path / "env39" / "pyvenv.cfg").touch()
    (tmp_path / "env39" / "agent.py").write_text(FOUND["pydantic-ai"][0])
    assert scan_project(tmp_path).candidates == []


def test_a_file_with_a_syntax_error_is_reported_and_the_rest_is_scanned(tmp_path: Path):
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "good.py").write_text(FOUND["pydantic-ai"][0])
    scan = scan_project(tmp_path)
    assert [found.target for found in scan.candidates] == ["good:support"]
    assert scan.unreadable[0].startswith("broken.py: ")


RANKED = {
    "a framework's agent before a function": (
        FOUND["a function of the prompt"][0],
        FOUND["pydantic-ai"][0],
        "b:support",
    ),
    "the one that hands over before the others": (
        "from agents import Agent\nleaf = Agent(name='leaf', tools=[print])\n",
        "from agents import Agent\nfrom a import leaf\ntop = Agent(name='top', handoffs=[leaf])\n",
        "b:top",
    ),
    "more tools before fewer": (
        "from agents import Agent\none = Agent(name='one', tools=[print])\n",
        "from agents import Agent\ntwo = Agent(name='two', tools=[print, repr])\n",
        "b:two",
    ),
    "the caller before what it calls": (
        "import openai\ndef complete(prompt):\n    return openai.OpenAI()\n",
        "from a import complete\ndef answer(prompt):\n    return complete(prompt)\n",
        "b:answer",
    ),
}


@pytest.mark.parametrize("name", RANKED)
def test_the_best_is_the_first(tmp_path: Path, name: str):
    first, second, best = RANKED[name]
    (tmp_path / "a.py").write_text(first)
    (tmp_path / "b.py").write_text(second)
    assert scan_project(tmp_path).candidates[0].target == best


PROGRAMS = {
    "a bin of package.json": (
        {"package.json": '{"bin": {"ask": "cli.mjs"}}', "cli.mjs": "import OpenAI from 'openai'"},
        "node cli.mjs {prompt}",
    ),
    "a script of package.json": (
        {"package.json": '{"scripts": {"start": "tsx a.ts"}}', "a.ts": "import 'openai'"},
        "npm run --silent start -- {prompt}",
    ),
    "a shell script": (
        {"ask.sh": "curl https://api.openai.com/v1/chat/completions -d $1"},
        "bash ask.sh {prompt}",
    ),
    "a Python program": (
        {"ask.py": "import openai\nprint(openai.OpenAI())\n"},
        "python ask.py {prompt}",
    ),
    "an entry point of pyproject.toml": (
        {"pyproject.toml": "[project]\nname = 'a'\n[project.scripts]\nask = 'ask:main'\n"},
        "python -c import sys; from ask import main; sys.exit(main()) {prompt}",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_found(tmp_path: Path, name: str):
    files, command = PROGRAMS[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    assert " ".join(scan_project(tmp_path).candidates[0].words) == command


@pytest.mark.parametrize(
    "file, client",
    [("CLAUDE.md", "ClaudeCode"), ("AGENTS.md", "Codex"), (".gemini", "GeminiCli"), (".pi", "Pi")],
)
def test_a_client_is_found_by_its_files(tmp_path: Path, file: str, client: str):
    (tmp_path / file).touch()
    assert scan_project(tmp_path).clients == [client]


def test_a_module_below_src_is_imported_without_src(tmp_path: Path):
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "bot.py").write_text(FOUND["pydantic-ai"][0])
    assert scan_project(tmp_path).candidates[0].target == "shop.bot:support"
