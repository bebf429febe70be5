"""The scan of a project finds its agents without importing them."""

from pathlib import Path

import pytest
from _pytest.pytester import LineMatcher

from offbook.surfaces import scan_project, write_first_test
from tests.forked import run_python

pytest_plugins = ["pytester"]

FOUND = {
    "pydantic-ai": (
        "from pydantic_ai import Agent\nsupport = Agent('openai:gpt-5')\n",
        ("pydantic-ai", "support", 2),
    ),
    "pydantic-ai, annotated and parametrised": (
        "import pydantic_ai\n\nbot: object = pydantic_ai.Agent[None, str]('openai:gpt-5')\n",
        ("pydantic-ai", "bot", 3),
    ),
    "OpenAI Agents under another name": (
        "from agents import Agent as A\n\ntriage = A(name='triage')\n",
        ("OpenAI Agents", "triage", 3),
    ),
    "LangChain": (
        "from langchain.agents import create_agent\ngraph = create_agent('openai:gpt-5', [])\n",
        ("LangGraph", "graph", 2),
    ),
    "a compiled graph": (
        "from langgraph.graph import StateGraph\nb = StateGraph(dict)\napp = b.compile()\n",
        ("LangGraph", "app", 3),
    ),
    "smolagents": (
        "from smolagents import CodeAgent\nagent = CodeAgent([], None)\n",
        ("smolagents", "agent", 2),
    ),
    "a function of the prompt": (
        "from openai import OpenAI\n\n\ndef ask(prompt: str, model='gpt-5'):\n    return prompt\n",
        ("OpenAI SDK", "ask", 4),
    ),
    "an async function of the question": (
        "import anthropic\n\n\nasync def answer(question):\n    return question\n",
        ("Anthropic SDK", "answer", 4),
    ),
}

NOT_FOUND = {
    "another library's Agent": "from elsewhere import Agent\nagent = Agent()\n",
    "an agent inside a function": (
        "from pydantic_ai import Agent\ndef make():\n    return Agent('openai:gpt-5')\n"
    ),
    "a function of two arguments": "import openai\ndef ask(prompt, user):\n    return prompt\n",
    "a private function": "import openai\ndef _ask(prompt):\n    return prompt\n",
    "a function without an SDK": "def ask(prompt):\n    return prompt\n",
}


@pytest.mark.parametrize("name", FOUND)
def test_an_agent_is_found(tmp_path: Path, name: str):
    text, expected = FOUND[name]
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "agent.py").write_text(text)
    [agent] = scan_project(tmp_path).agents
    assert (agent.framework, agent.name, agent.line) == expected
    assert agent.module == "app.agent"


@pytest.mark.parametrize("name", NOT_FOUND)
def test_other_code_is_not_taken_for_an_agent(tmp_path: Path, name: str):
    (tmp_path / "agent.py").write_text(NOT_FOUND[name])
    assert scan_project(tmp_path).agents == []


@pytest.mark.parametrize("folder", ["node_modules", ".venv", "tests", "build"])
def test_a_folder_of_other_code_is_skipped(tmp_path: Path, folder: str):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "agent.py").write_text(FOUND["pydantic-ai"][0])
    assert scan_project(tmp_path).agents == []


def test_a_virtual_environment_of_any_name_is_skipped(tmp_path: Path):
    (tmp_path / "env39").mkdir()
    (tmp_path / "env39" / "pyvenv.cfg").touch()
    (tmp_path / "env39" / "agent.py").write_text(FOUND["pydantic-ai"][0])
    assert scan_project(tmp_path).agents == []


def test_a_file_with_a_syntax_error_is_reported_and_the_rest_is_scanned(tmp_path: Path):
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "good.py").write_text(FOUND["pydantic-ai"][0])
    scan = scan_project(tmp_path)
    assert [agent.name for agent in scan.agents] == ["support"]
    assert scan.unreadable[0].startswith("broken.py: ")


def test_a_framework_agent_comes_before_a_function(tmp_path: Path):
    (tmp_path / "a.py").write_text(FOUND["a function of the prompt"][0])
    (tmp_path / "b.py").write_text(FOUND["pydantic-ai"][0])
    assert [agent.name for agent in scan_project(tmp_path).agents] == ["support", "ask"]


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
    scan = scan_project(tmp_path)
    assert scan.agents[0].module == "shop.bot"
    assert set(write_first_test(scan)) == {
        tmp_path / "src" / "test_support.py",
        tmp_path / "src" / "conftest.py",
    }


def test_the_test_goes_to_the_folder_of_tests_and_a_conftest_is_kept(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "conftest.py").touch()
    (tmp_path / "agent.py").write_text(FOUND["pydantic-ai"][0])
    assert list(write_first_test(scan_project(tmp_path))) == [
        tmp_path / "tests" / "test_support.py"
    ]


AGENT = """
import openai

def ask(prompt: str):
    messages = [{"role": "user", "content": prompt}]
    answer = openai.OpenAI().chat.completions.create(model="m", messages=messages)
    %s
"""


@pytest.mark.parametrize(
    "last_line, outcome, message",
    [
        ("return answer.choices[0].message.content", "passed", "*test_ask.py .*"),
        ("print(answer.choices[0].message.content)", "failed", "*assert None == 'Hello, how*"),
        ("return 'Hello'", "failed", "*assert 'Hello' == 'Hello, how can I help?'*"),
    ],
    ids=["returns the answer", "returns nothing", "returns another answer"],
)
def test_the_written_test_depends_on_the_answer_of_the_agent(
    pytester: pytest.Pytester, last_line: str, outcome: str, message: str
):
    (pytester.path / "agent.py").write_text(AGENT % last_line)
    for path, text in write_first_test(scan_project(pytester.path)).items():
        path.write_text(text)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    plugins = ["randomly", "cacheprovider", "hypothesispytest"]
    words = ["-m", "pytest", *(f"-pno:{plugin}" for plugin in plugins)]
    result = run_python(*words, cwd=pytester.path, imports=["openai"])
    lines = LineMatcher(result.stdout.splitlines())
    lines.fnmatch_lines([message, f"*1 {outcome} in *"])
