"""`offbook init` in agent projects of many kinds: a test of the project's own agent that notices.

Each project is written as the documentation of its framework writes it. Further ones are tried by
hand: what is needed for one of them belongs to its kind, not to its files.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.forked import ROOT, run_python
from tests.thorough import usual_rows

PROJECTS = Path(__file__).parent / "projects"


class Project(NamedTuple):
    """What `init` should choose in a project, and which broken tools its test should notice."""

    target: str
    tools: set[str]
    imports: tuple[str, ...] = ()
    needs: str = ""  # a package, or a program
    modules: str = ""  # a client with the Node modules of the project


PYTHON = {
    "agents_as_tools": Project("front_desk:front_desk", {"stock_of"}, ("agents",)),
    "agents_context": Project("profile:assistant", {"fetch_user_age"}, ("agents",)),
    "agents_guardrail": Project("tutor:tutor", {"look_up_formula"}, ("agents",)),
    "agents_handoffs": Project("triage:triage_agent", {"find_order"}, ("agents",)),
    "anthropic_class": Project("assistant:Assistant.chat", {"get_stock"}, ("anthropic",)),
    "anthropic_runner": Project("bakery:answer", {"bread_in_stock"}, ("anthropic",)),
    "anthropic_stream": Project("glossary:Glossary.ask", {"look_up"}, ("anthropic",)),
    "async_class": Project(
        "concierge:Concierge.run", {"room_status", "breakfast_hours"}, ("openai",)
    ),
    "click_command": Project("cli:main", {"tide"}, ("anthropic",)),
    "click_group": Project("garden:cli", {"watering"}, ("openai",)),
    "fastapi_route": Project("main:chat", {"get_price"}, ("openai",), "fastapi"),
    "fastapi_router": Project("app.routes:support", {"track_parcel"}, ("anthropic",), "fastapi"),
    "flask_blueprint": Project("library.chat:post_message", {"find_shelf"}, ("openai",), "flask"),
    "flask_route": Project("app:ask", {"look_up_book"}, ("openai",), "flask"),
    "genai_chat": Project("lights:ask", {"get_room_temperature"}, ("google.genai",)),
    "langchain_agent": Project(
        "agent:agent", {"find_user", "price_of_plan"}, ("langchain.agents", "langchain_openai")
    ),
    "langchain_loop": Project(
        "stocks:run", {"get_price"}, ("langchain.chat_models", "langchain_openai")
    ),
    "langgraph_factory": Project(
        "weather.graph:build_graph", {"get_weather"}, ("langgraph.prebuilt", "langchain_openai")
    ),
    "langgraph_router": Project(
        "helpdesk.graph:make_graph", {"ticket_status"}, ("langgraph.prebuilt", "langchain_openai")
    ),
    "langgraph_subgraph": Project(
        "graph:graph", {"search"}, ("langgraph.prebuilt", "langchain_openai")
    ),
    "openai_loop": Project(
        "weather:run_conversation", {"get_current_weather", "get_time"}, ("openai",)
    ),
    "pydantic_delegation": Project("jokes:editor", {"draft_jokes"}, ("pydantic_ai.models.openai",)),
    "pydantic_deps": Project(
        "bank_support:support_agent", {"customer_balance"}, ("pydantic_ai.models.openai",)
    ),
    "pydantic_toolset": Project(
        "travel:agent",
        {"distance_to", "miles_left", "time_zone"},
        ("pydantic_ai.models.openai",),
    ),
    "smolagents_tools": Project(
        "app:agent", {"get_travel_duration", "hotel_price"}, ("smolagents",)
    ),
    "typer_app": Project(
        "notes:make_agent",
        {"count_notes", "search_notes"},
        ("pydantic_ai.models.openai",),
        "typer",
    ),
}
# Of these kinds, others are among the usual rows.
FURTHER = """agents_as_tools agents_context agents_guardrail anthropic_runner anthropic_stream
click_command fastapi_route flask_route langchain_loop langgraph_router langgraph_subgraph
pydantic_delegation pydantic_toolset""".split()  # noqa: SIM905
PROGRAMS = {
    "argparse_script": Project("python agent.py {prompt}", {"convert"}),
    "bash_curl": Project("bash agent.sh {prompt}", {"kernel_name"}, needs="jq"),
    "node_fetch": Project("node agent.mjs {prompt}", {"tide"}, needs="node"),
    "node_openai": Project(
        "node index.js {prompt}", {"get_rate"}, needs="node", modules="node-agents"
    ),
    "typescript_agent": Project(
        "npm run --silent start -- {prompt}", {"free_slots"}, needs="npm", modules="pi-0.87"
    ),
}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.endswith("_API_KEY"):
            monkeypatch.delenv(name)


def copy_project(name: str, folder: Path, project: Project) -> Path:
    copy = folder / name
    shutil.copytree(PROJECTS / name, copy)
    if project.modules:
        modules = ROOT / ".clients" / project.modules / "node_modules"
        if not modules.is_dir():
            pytest.skip(f"{project.modules} is not installed")
        (copy / "node_modules").symlink_to(modules)
    return copy


def run_init(folder: Path, *words: str, imports: tuple[str, ...] = ()):
    return run_python("-m", "offbook", "init", *words, cwd=folder, imports=imports)


@pytest.mark.slow
@pytest.mark.parametrize("name", usual_rows(PYTHON, FURTHER))
def test_an_agent_in_python_gets_a_test_that_notices_its_broken_tools(name: str, tmp_path: Path):
    project = PYTHON[name]
    if project.needs:
        pytest.importorskip(project.needs)
    folder = copy_project(name, tmp_path, project)
    result = run_init(folder, "--json", imports=project.imports)
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(result.stdout)
    assert found["candidate"]["target"] == project.target
    assert set(found["noticed"]) == project.tools
    assert found["missed"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gets_a_playbook_that_notices_its_broken_tools(name: str, tmp_path: Path):
    project = PROGRAMS[name]
    if project.needs and shutil.which(project.needs) is None:
        pytest.skip(f"{project.needs} is not installed")
    folder = copy_project(name, tmp_path, project)
    result = run_init(folder, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(result.stdout)
    assert found["candidate"]["target"].replace("\x1f", " ") == project.target
    assert set(found["noticed"]) == project.tools


def read_capture(name: str) -> str:
    """Return the output of `offbook init` in a project, as the documentation shows it."""
    page = (ROOT / "docs" / "getting-started" / "your-project.md").read_text()
    text = page.partition(f"<!-- capture: {name} -->")[2]
    return hide_time(text.partition("$ offbook init\n")[2].partition("```")[0])


def hide_time(output: str) -> str:
    return re.sub(r"done in \d+ s", "done in N s", output)


# What a person breaks in the source, after `init` has written the test.
BROKEN = {
    "openai_loop": ("weather.py", "times[timezone]})", "timezone})"),
    "anthropic_class": ("assistant.py", "return self.stock[sku]", "return 0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_the_written_test_fails_for_a_tool_that_a_person_broke(name: str, tmp_path: Path):
    project, (file, old, new) = PYTHON[name], BROKEN[name]
    folder = copy_project(name, tmp_path, project)
    assert read_capture(name) == hide_time(run_init(folder, imports=project.imports).stdout)
    source = (folder / file).read_text()
    assert old in source
    (folder / file).write_text(source.replace(old, new))
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    result = run_python(*words, cwd=folder, imports=project.imports)
    assert "1 failed" in result.stdout


@pytest.mark.slow
def test_the_playbook_fails_for_a_tool_that_a_person_broke(tmp_path: Path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    folder = copy_project("node_fetch", tmp_path, PROGRAMS["node_fetch"])
    output = run_init(folder).stdout
    assert read_capture("node_fetch") == hide_time(output)
    words = ["-m", *output.rpartition("next: ")[2].split()]
    assert run_python(*words, cwd=folder).returncode == 0
    source = (folder / "agent.mjs").read_text()
    (folder / "agent.mjs").write_text(source.replace("high at 04:12", "low"))
    result = run_python(*words, cwd=folder)
    assert result.returncode == 1
    assert "the result does not contain 'high at 04:12', got 'low'" in result.stderr


def test_a_dependency_that_cannot_be_made_up_is_asked_for(tmp_path: Path):
    folder = copy_project("needs_database", tmp_path, Project("", set()))
    imports = ("pydantic_ai.models.openai",)
    result = run_init(folder, imports=imports)
    assert result.returncode == 1
    assert "support:agent needs connection (Connection)" in result.stderr
    assert "offbook init support:agent --with connection=EXPRESSION" in result.stderr
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["support.py"]


@pytest.mark.slow
def test_a_given_dependency_is_used(tmp_path: Path):
    folder = copy_project("needs_database", tmp_path, Project("", set()))
    given = "connection=__import__('sqlite3').connect(':memory:')"
    result = run_init(folder, "--json", "--with", given, imports=("pydantic_ai.models.openai",))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["mocked"] == ["count_customers"]  # the database has no table
    assert "mock_tools" in (folder / "test_agent.py").read_text()
