"""`offbook init` as a command: its list, its choice, what it writes and what it refuses to."""

import json
import os
from pathlib import Path

import pytest

from offbook.exchange import Tool, find_side_effect
from tests.forked import run_python
from tests.terminals import Terminal

AGENT = """
import json
import openai

ITEMS = {"kettle": "30 EUR"}
TOOLS = [{"type": "function", "function": {"name": "price", "parameters": {
    "type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}}}]

def price(item):
    return ITEMS[item]

def ask(prompt):
    messages = [{"role": "user", "content": prompt}]
    while True:
        reply = openai.OpenAI().chat.completions.create(model="m", messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = price(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
"""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.endswith("_API_KEY"):
            monkeypatch.delenv(name)


def run_init(folder: Path, *words: str, imports: tuple[str, ...] = ("openai",)):
    return run_python("-m", "offbook", "init", *words, cwd=folder, imports=imports)


def run_pytest(folder: Path):
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    return run_python(*words, cwd=folder, imports=["openai"])


def test_an_empty_folder_gets_a_passing_example(tmp_path: Path):
    result = run_init(tmp_path)
    assert result.returncode == 0
    assert "wrote test_shop.py\nit passes; next: pytest test_shop.py" in result.stdout


def test_a_first_test_has_no_part_of_a_secret_in_a_result(tmp_path: Path):
    key = "sk-proj-" + "Zk3" * 16
    long = "the price of a kettle is, at the moment and until the end of the month, 30 EUR; "
    agent = AGENT.replace("return ITEMS[item]", f"return {long!r} + 'sk-proj-' + 'Zk3' * 16")
    (tmp_path / "shop.py").write_text(agent.replace("return message.content", f"return {key!r}"))
    assert run_init(tmp_path, "shop:ask").returncode == 0
    written = (tmp_path / "test_ask.py").read_text()
    assert "Zk3" not in written
    assert "assert run.results(" in written


def test_a_broken_agent_fails_the_example(tmp_path: Path):
    run_init(tmp_path)
    shop = tmp_path / "shop.py"
    shop.write_text(shop.read_text().replace('params["id"] not in self.found', "False"))
    result = run_pytest(tmp_path)
    assert result.returncode == 1
    assert "assert [7] == []" in result.stdout


def test_a_project_without_an_agent_gets_no_example(tmp_path: Path):
    (tmp_path / "README.md").touch()
    result = run_init(tmp_path)
    assert result.returncode == 2
    assert "no agent was found" in result.stderr
    assert "offbook init --example" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_an_example_is_written_where_it_is_asked_for(tmp_path: Path):
    (tmp_path / "README.md").touch()
    assert run_init(tmp_path, "--example").returncode == 0
    assert (tmp_path / "test_shop.py").exists()


def test_an_existing_file_is_not_overwritten(tmp_path: Path):
    (tmp_path / "test_shop.py").write_text("mine")
    result = run_init(tmp_path, "--example")
    assert result.returncode == 2
    assert "test_shop.py: file exists already" in result.stderr
    assert not (tmp_path / "shop.py").exists()
    assert (tmp_path / "test_shop.py").read_text() == "mine"


def test_what_can_be_driven_is_listed_with_its_reason(tmp_path: Path):
    (tmp_path / "shop.py").write_text(AGENT)
    (tmp_path / "other.py").write_text("import openai\ndef other(prompt):\n    openai.OpenAI()\n")
    result = run_init(tmp_path, "--no-run", imports=())
    assert result.stdout.splitlines() == [
        "1. shop:ask  function that uses OpenAI SDK with tools (shop.py:12)",
        "2. other:other  function that uses OpenAI SDK (other.py:2)",
        "to choose another: offbook init other:other",
    ]


@pytest.mark.slow
def test_the_test_is_written_in_the_folder_and_style_of_the_project(tmp_path: Path):
    (tmp_path / "shop.py").write_text(AGENT)
    (tmp_path / "tests").mkdir()
    marker = "import pytest\n\n@pytest.mark.asyncio\nasync def test_other():\n    pass\n"
    (tmp_path / "tests" / "test_other.py").write_text(marker)
    result = run_init(tmp_path, "shop:ask")
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "tests" / "test_ask.py").read_text()
    assert "@pytest.mark.asyncio\nasync def test_ask(offbook):\n    run = await " in text
    assert "1 of 1 broken tool noticed" in result.stdout


@pytest.mark.slow
def test_a_test_that_notices_nothing_says_so(tmp_path: Path):
    (tmp_path / "bot.py").write_text(AGENT.replace(", tools=TOOLS", ""))
    result = run_init(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "the test notices no broken tool" in result.stdout


def test_an_agent_that_cannot_be_imported_is_explained(tmp_path: Path):
    (tmp_path / "bot.py").write_text("raise RuntimeError('no config')\n" + AGENT)
    result = run_init(tmp_path)
    assert result.returncode == 1
    assert "no test was written: bot.py:1: RuntimeError: no config" in result.stderr
    assert 'run = offbook.drive(ask).run(when("Hello", [say("Hi.")]))' in result.stderr
    assert not (tmp_path / "test_ask.py").exists()


def test_an_unknown_module_is_refused_with_those_that_exist(tmp_path: Path):
    (tmp_path / "shop.py").write_text(AGENT)
    result = run_init(tmp_path, "shap:ask", imports=())
    assert result.returncode == 2
    assert "no module 'shap' in this folder" in result.stderr
    assert "one of shop" in result.stderr


def test_a_detected_client_is_suggested(tmp_path: Path):
    (tmp_path / "CLAUDE.md").touch()
    assert "offbook.drive(ClaudeCode())" in run_init(tmp_path, imports=()).stdout


def test_json_lists_the_candidates(tmp_path: Path):
    (tmp_path / "shop.py").write_text(AGENT)
    result = run_init(tmp_path, "--no-run", "--json", imports=())
    assert json.loads(result.stdout)["candidates"][0]["target"] == "shop:ask"


@pytest.mark.parametrize(
    "name, description, effect",
    [
        ("send_email", "", "sends"),
        ("writeFile", "", "writes files"),
        ("process", "Charges the customer's card", "pays"),
        ("charge_card", "", "pays"),
        ("get_email", "", ""),
        ("find_payment", "", ""),
        ("transfer_to_billing", "Hand over to the billing agent", ""),
        ("forecast", "The weather of a day", ""),
    ],
)
def test_a_side_effect_is_known_by_name_and_description(name: str, description: str, effect: str):
    assert find_side_effect(Tool(name, description)) == effect


PLAIN_AGENT = """
import json
import urllib.request

def ask(prompt):
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    url = "https://api.openai.com/v1/chat/completions"
    reply = json.load(urllib.request.urlopen(url, json.dumps(body).encode()))
    return reply["choices"][0]["message"]["content"]
"""


@pytest.fixture
def two_agents(tmp_path: Path) -> Path:
    (tmp_path / "first.py").write_text(PLAIN_AGENT)
    (tmp_path / "second.py").write_text(PLAIN_AGENT.replace("def ask", "def answer"))
    return tmp_path


@pytest.mark.slow
def test_a_terminal_is_asked_which_agent_to_test(two_agents: Path):
    with Terminal("init", cwd=two_agents) as terminal:
        terminal.enter("2", prompt=r"which one\? \[1\]: ")
        assert terminal.end() == 0
    assert "1. first:ask" in terminal.text
    assert "running second:answer" in terminal.text
    assert (two_agents / "test_answer.py").exists()
    assert not (two_agents / "test_ask.py").exists()


@pytest.mark.slow
def test_a_wrong_answer_is_asked_again_and_enter_takes_the_first(two_agents: Path):
    with Terminal("init", cwd=two_agents) as terminal:
        terminal.enter("7", prompt=r"which one\?")
        terminal.expect("7 is not in the range")
        terminal.enter("", prompt=r"which one\?")
        assert terminal.end() == 0
    assert (two_agents / "test_ask.py").exists()


def test_ctrl_c_at_the_question_writes_nothing(two_agents: Path):
    with Terminal("init", cwd=two_agents) as terminal:
        terminal.enter("\x03", prompt=r"which one\?")
        assert terminal.end() != 0
    assert sorted(path.name for path in two_agents.glob("*.py")) == ["first.py", "second.py"]
