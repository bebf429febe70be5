"""An agent that knows only the descriptions of the MCP tools succeeds at the first try."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp.client.client import Client

from tests.surfaces.test_mcp import serve_tools

STARTS_AGENTS = {
    "test_benchmark",
    "test_chaos",
    "test_evaluate",
    "test_record",
    "test_replay",
    "test_run",
}


def build_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments from a schema alone: its examples, and the first of several values."""
    arguments: dict[str, Any] = {}
    for name, property_ in schema["properties"].items():
        if "examples" in property_:
            arguments[name] = property_["examples"][0]
        elif "enum" in property_ and name in schema["required"]:
            arguments[name] = property_["enum"][0]
    jsonschema.validate(arguments, schema)
    return arguments


async def test_a_client_that_knows_only_the_descriptions_tests_a_flow(workspaces: Path):
    results: dict[str, Any] = {}
    async with Client(serve_tools()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        order = re.search(r"in this order: (.*?)\. ", client.instructions or "")
        assert order is not None
        for name in re.findall(r"test_\w+", order[1]):
            arguments = build_arguments(tools[name].input_schema)
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            results[name] = result.structured_content
    assert list(results) == [
        f"test_{name}" for name in ("setup", "run", "assert", "inspect", "report", "cleanup")
    ]
    assert results["test_run"]["termination_reason"] == "CompletionPromise"
    assert results["test_run"]["mock_responses_remaining"] == 0
    assert results["test_assert"]["passed"]
    assert results["test_inspect"]["records"]
    assert (results["test_report"]["tests"], results["test_report"]["failed"]) == (4, 0)


@pytest.mark.parametrize("name", ["test_snapshot", "test_diff"])
async def test_the_example_of_a_further_tool_works(workspaces: Path, name: str):
    async with Client(serve_tools()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for tool in ("test_setup", name):
            result = await client.call_tool(tool, build_arguments(tools[tool].input_schema))
            assert not result.is_error, result.content


@pytest.mark.parametrize(
    "name, expected",
    [
        ("test_coverage", {"percent": 100.0, "missing": []}),
        ("test_compare", {"same": True, "differences": {}}),
        ("test_benchmark", {"passed": True, "runs": 10}),
        ("test_chaos", {"passed": True, "summary": "1 fault: 1 reported"}),
    ],
)
async def test_the_example_of_a_tool_after_a_run_works(
    workspaces: Path, name: str, expected: dict[str, Any]
):
    async with Client(serve_tools()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for tool in ("test_setup", "test_run", name):
            result = await client.call_tool(tool, build_arguments(tools[tool].input_schema))
            assert not result.is_error, result.content
        jsonschema.validate(result.structured_content, tools[name].output_schema or {})
        found: dict[str, Any] = result.structured_content or {}
    assert {key: found[key] for key in expected} == expected


async def test_the_descriptions_have_the_rules_of_the_loop(workspaces: Path):
    async with Client(serve_tools()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        instructions = client.instructions or ""
    run, setup = tools["test_run"], tools["test_setup"]
    for text in (instructions, run.description, str(run.input_schema)):
        assert "LOOP_COMPLETE" in (text or "")
        assert "<event topic=" in (text or "")
    hat = setup.input_schema["$defs"]["Hat"]["properties"]
    assert "Topics that select this hat" in hat["triggers"]["description"]
    assert hat["publishes"]["type"] == "array"


async def test_an_optional_parameter_has_one_type(workspaces: Path):
    async with Client(serve_tools()) as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        for name, property_ in tool.input_schema["properties"].items():
            assert "anyOf" not in property_, (tool.name, name)
    [run] = [tool for tool in tools if tool.name == "test_run"]
    assert run.input_schema["properties"]["mock_responses"]["type"] == "array"


async def test_a_tool_that_starts_an_agent_is_destructive(workspaces: Path):
    async with Client(serve_tools()) as client:
        tools = (await client.list_tools()).tools
    hints = {tool.name: tool.annotations for tool in tools}
    destructive = {name for name, hint in hints.items() if hint and hint.destructive_hint}
    assert destructive == {*STARTS_AGENTS, "test_cleanup"}
    assert {name for name, hint in hints.items() if hint and hint.open_world_hint} == STARTS_AGENTS
