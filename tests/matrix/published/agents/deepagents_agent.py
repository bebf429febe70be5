"""deepagents: the deep agent, with its file tools, its list of tasks and a subagent."""

from breaks import Break
from deepagents import create_deep_agent, graph
from deepagents.backends import StateBackend
from deepagents.backends.protocol import EditResult, ReadResult
from deepagents.middleware import subagents
from langchain_core.tools import StructuredTool

from offbook import call, role, say, when


def test_the_agent_writes_a_file_and_delegates(offbook):
    agent = create_deep_agent("openai:gpt-5", system_prompt="You write about drinks.")
    delegate = {"description": "Find a fact about tea", "subagent_type": "general-purpose"}
    rehearsal = offbook.drive(agent)
    run = rehearsal.run(
        when(
            "Write about tea",
            [
                call("task", delegate),
                call("write_file", {"file_path": "/tea.md", "content": "Tea is hot.\n"}),
                call(
                    "edit_file",
                    {"file_path": "/tea.md", "old_string": "hot", "new_string": "hot and green"},
                ),
                call("read_file", {"file_path": "/tea.md"}),
                say("It is in /tea.md."),
            ],
        ),
        role("subagent", [say("Green tea is not fermented.")], first="Find a fact about tea"),
    )
    assert run.tools == ["task", "write_file", "edit_file", "read_file"]
    assert run.results("task")[0].text == "Green tea is not fermented."
    assert "Tea is hot and green." in run.results("read_file")[0].text
    assert run.output == "It is in /tea.md."
    assert "You write about drinks." in run.requests[0].system


def lose_the_edit(_self, file_path, *_):
    return EditResult(path=file_path, occurrences=1)


def answer_from_memory(*_, **__):
    return ReadResult(file_data={"content": "Tea is cold.", "encoding": "utf-8"})


def build_a_tool_that_answers_itself(*_, **__):
    def task(description: str, subagent_type: str) -> str:
        """Delegate a task."""
        return "Done."

    return StructuredTool.from_function(task)


def create_without_prompt(*arguments, system_prompt=None, **options):
    return create_agent(*arguments, **options)


create_agent = graph.create_agent
BREAKS = {
    "the edit is lost": Break(
        lambda patch: patch.setattr(StateBackend, "edit", lose_the_edit),
        "'Tea is hot and green.' in",
    ),
    "the file is not read": Break(
        lambda patch: patch.setattr(StateBackend, "read", answer_from_memory), "Tea is cold."
    ),
    "the subagent is not asked": Break(
        lambda patch: patch.setattr(
            subagents, "_build_task_tool", build_a_tool_that_answers_itself
        ),
        "role('subagent'): playbook not fully consumed",
    ),
    "the prompt is lost": Break(
        lambda patch: patch.setattr(graph, "create_agent", create_without_prompt),
        "You write about drinks.",
    ),
}
