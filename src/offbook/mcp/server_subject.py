"""An MCP server as the subject of a test.

    with drive(McpServer(["uvx", "mcp-server-time"])) as rehearsal:
        rehearsal.run(when("the time", [
            call("get_current_time", {"timezone": "UTC"}).then(check_time),
            say("Done."),
        ]))

The subject is an agent without a will: it offers the tools of the server to the model and calls
what the script calls. So scripts, checks, goldens of the requests (with the tools, their
descriptions and schemas), cassettes, faults and `explore` apply to servers as to any agent.

Each message of the server is held against the rules of the protocol; a broken one fails the run.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import InjectedFault, ModelError, RunError, UsageError
from offbook.exchange.json_rpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    JsonObject,
    RpcError,
    as_object,
    as_objects,
)
from offbook.exchange.messages import (
    Content,
    History,
    Message,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from offbook.exchange.model import Request, Tool, compile_validator
from offbook.exchange.people import Allow, Deny, PersonQuestion
from offbook.mcp.http_sessions import bridge_command
from offbook.mcp.server_session import PROTOCOL_VERSIONS, read_block
from offbook.subjects.process import isolated_env
from offbook.subjects.rpc_process import ProtocolRules, RpcProcess
from offbook.subjects.subject import PlainSubject
from offbook.subjects.tool_watch import ToolWatch
from offbook.trace.events import AgentEndData, AgentStartData, ProcessStartData, Verdict
from offbook.version import VERSION

if TYPE_CHECKING:
    from offbook.subjects.subject import ModelAccess, RunContext

DEADLINE = 30.0  # seconds for the response to one request
MAX_PAGES = 1000
CALL = "tools/call"
TOOL_NAME = r"[A-Za-z0-9_.\-/]{1,128}"
BROKEN = {INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR}  # any other error is a rejection
BLOCK_FIELDS = {
    "text": {"text": "a text"},
    "image": {"data": "base64", "mimeType": "a text"},
    "audio": {"data": "base64", "mimeType": "a text"},
    "resource": {"resource": "an object"},
    "resource_link": {"uri": "a text", "name": "a text"},
}
# Those that are optional; null is absent.
TOOL_FIELDS = {"title": "a text", "description": "a text", "annotations": "an object"}
RESULT_FIELDS = {"structuredContent": "an object", "isError": "true or false"}
RESOURCE_FIELDS = {"mimeType": "a text", "text": "a text", "blob": "base64"}
KINDS = {"a text": str, "base64": str, "an object": dict, "true or false": bool}


class McpServer(PlainSubject):
    """An MCP server: its command, or the URL of one that runs.

    Each request must be answered within `deadline` seconds. `env` is added to its environment.
    `info` is the server's answer to `initialize`, `listed` its tools.
    """

    name = "mcp"
    model_access: ModelAccess = "call"
    starts_process = True
    obeys_model = True  # no search asks whether it should have refused a call

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        if isinstance(command, str):
            if not command.startswith("http://"):
                if command.startswith("https://"):
                    raise UsageError(
                        f"unsupported URL {command!r}: a server is reached over http:// only",
                        hint="start it on this machine: McpServer([…]) or http://127.0.0.1:8000/mcp",
                    )
                raise UsageError(
                    f"expected a list of words or a URL, got {command!r}",
                    hint='write McpServer(["uvx", "mcp-server-time"])',
                )
            command = bridge_command(command)
        if not command:
            raise UsageError("the command of the MCP server is empty")
        self._command = list(command)
        self._env = dict(env or {})
        self._deadline = deadline
        self.tool_watch = ToolWatch()
        self.info: JsonObject = {}
        self.listed: list[JsonObject] = []
        self.error: Exception | None = None
        self._history = History()
        self._undo: list[Callable[[], None]] = []
        self._rules = ProtocolRules()
        self._process = RpcProcess("the MCP server", self._respond)

    # --- The process

    async def open(self, context: RunContext, /) -> None:
        """Start the server, initialize it, and list its tools."""
        self._context = context
        self._history = History()
        self._undo.append(self.tool_watch.open(context))
        home = Path(tempfile.mkdtemp(prefix="offbook-home-"))
        self._undo.append(lambda: shutil.rmtree(home, ignore_errors=True))
        extra = {**context.proxy_env(self._env), **context.hub.variables, **self._env}
        self._rules = ProtocolRules()
        self._process = RpcProcess("the MCP server", self._respond, rules=self._rules)
        context.hub.emit_data(ProcessStartData(self._command))
        self._process.start(self._command, cwd=context.cwd, env=isolated_env(home, extra))
        client = {"name": "offbook", "version": VERSION}
        self.info = await self._request(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSIONS[0],
                "capabilities": {"sampling": {}, "roots": {}, "elicitation": {}},
                "clientInfo": client,
            },
        )
        self._check_info()
        self._process.notify("notifications/initialized")
        self._rules.expect(await self._request("ping") == {}, "the result of ping must be empty")
        self.listed = await self._list_tools() if "tools" in self.info["capabilities"] else []
        self._check_tools()
        self.tool_watch.watched.update(tool["name"] for tool in self.listed)
        self._raise_problems()

    async def close(self) -> None:
        """End the server: the end of its input, then a kill."""
        await self._process.close()
        while self._undo:
            self._undo.pop()()

    async def _request(self, method: str, params: JsonObject | None = None) -> JsonObject:
        """Return the result of a request; an end of the server fails the run.

        So does an error, except that of a tool, which may be a rejection.
        """
        try:
            result = await self._process.request(method, params, deadline=self._deadline)
        except RpcError as error:
            if method == CALL:
                raise
            raise RunError(
                f"the MCP server failed in {method}: {error} (code {error.code})",
                hint=self._process.last_lines(),
            ) from error
        if isinstance(result, dict):
            return cast("JsonObject", result)
        got = type(cast("object", result)).__name__
        raise RunError(f"the MCP server answered {method} with {got}, expected an object")

    # --- The agent

    async def prompt(self, text: str, /) -> object:
        """Send the prompt to the model, and call the tools that it calls until it says a text."""
        hub, source = self.context.hub, self.context.source
        instructions = self.info.get("instructions") or ""
        tools = tuple(
            Tool(tool["name"], tool.get("description") or "", tool["inputSchema"])
            for tool in self.listed
        )
        hub.emit_data(AgentStartData(text))
        self.error = None
        self._history = self._history.plus(user(text))
        while True:
            try:
                reply = await source.reply(Request(self._history, instructions, tools))
            except ModelError as error:  # of the script: not a fault of the server
                self.error = error
                hub.emit_data(AgentEndData("error"))
                return None
            self._history = self._history.plus(reply.message)
            if not reply.calls:
                break
            results = [await self._call_tool(call) for call in reply.calls]
            self._history = self._history.plus(Message("tool", tuple(results)))
        hub.emit_data(AgentEndData("stop"))
        return reply.text

    async def _call_tool(self, call: ToolCall) -> ToolResult:
        try:
            return await self._call_server(call)
        except InjectedFault as fault:  # of the test: not a fault of the server
            return ToolResult(call.id, (Text(str(fault)),), failed=True, name=call.name)

    async def _call_server(self, call: ToolCall) -> ToolResult:
        params = {"name": call.name, "arguments": call.arguments}
        async with self.tool_watch.call(call.name, call.arguments, call.id) as execution:
            try:
                result = await self._request(CALL, params)
            except RpcError as error:
                if error.code in BROKEN:
                    raise RunError(
                        f"the MCP server failed in {call.name}: {error} (code {error.code})",
                        hint="return a result with isError, or the code -32602 for wrong arguments",
                    ) from error
                execution.failed = True
                execution.returns(str(error))
                self._raise_problems()
                return ToolResult(call.id, (Text(str(error)),), failed=True, name=call.name)
            content = self._check_result(call.name, result)
            self._raise_problems()
            content = execution.with_fault(content)
            failed = execution.failed = bool(result.get("isError"))
            execution.returns([msgspec.to_builtins(block) for block in content])
        return ToolResult(
            call.id, content, failed, call.name, details=result.get("structuredContent")
        )

    async def _respond(self, method: str, params: JsonObject) -> Any:
        """Answer a request of the server: its question to the model, or to the person."""
        if method == "ping":
            return {}
        if method == "roots/list":
            return {"roots": [{"uri": self.context.cwd.as_uri(), "name": "cwd"}]}
        if method == "elicitation/create":
            return await self._ask_person(params)
        if method == "sampling/createMessage":
            messages = [_read_sampled(message) for message in as_objects(params.get("messages"))]
            request = Request(History(messages), str(params.get("systemPrompt") or ""))
            reply = await self.context.source.reply(request)
            content = {"type": "text", "text": reply.text}
            return {"role": "assistant", "content": content, "model": reply.model or "offbook"}
        self._rules.broken.append(f"the server sent {method!r}, which the client does not support")
        raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)

    async def _ask_person(self, params: JsonObject) -> JsonObject:
        answer = await self.context.ask(PersonQuestion(str(params.get("message", ""))))
        if isinstance(answer, Deny):
            return {"action": "decline"}
        if isinstance(answer, Allow):
            return {"action": "accept", "content": dict(answer.params or {})}
        properties = as_object(as_object(params.get("requestedSchema")).get("properties"))
        if not isinstance(answer, dict):  # the value of the only field
            answer = {next(iter(properties), "value"): answer}
        return {"action": "accept", "content": answer}

    # --- The rules of the protocol

    def _raise_problems(self) -> None:
        page = "https://modelcontextprotocol.io/specification"
        self._rules.raise_broken("the MCP server breaks the protocol", page)

    def verdicts(self) -> Iterable[Verdict]:
        """Return the verdicts on all messages of the server, and on its end."""
        yield from self._process.ends
        yield self._rules.verdict("MCP")

    def _check_info(self) -> None:
        version = self.info.get("protocolVersion")
        self._rules.expect(version in PROTOCOL_VERSIONS, f"unknown protocol version {version!r}")
        server = as_object(self.info.get("serverInfo"))
        named = bool(server.get("name")) and "version" in server
        self._rules.expect(named, "serverInfo must have a name and a version")
        capable = isinstance(self.info.get("capabilities"), dict)
        self._rules.expect(capable, "the result of initialize must have capabilities")
        self._raise_problems()

    def _check_fields(self, title: str, value: JsonObject, fields: Mapping[str, str]) -> None:
        """Hold the fields that are there against their types."""
        for name, kind in fields.items():
            found: object = value.get(name)
            if found is not None:
                self._rules.expect(_is_kind(found, kind), f"{name} of {title} must be {kind}")

    def _check_block(self, title: str, kind: str, block: JsonObject) -> None:
        fields = BLOCK_FIELDS.get(kind, {})
        for field in fields:
            self._rules.expect(block.get(field) is not None, f"{title} must have {field}")
        self._check_fields(title, block, fields)
        if isinstance(block.get("resource"), dict):
            resource = as_object(block["resource"])
            has_content = ("text" in resource) != ("blob" in resource)
            self._rules.expect(
                isinstance(resource.get("uri"), str) and has_content,
                f"the resource of {title} must have a uri, and a text or a blob",
            )
            self._check_fields(f"the resource of {title}", resource, RESOURCE_FIELDS)

    async def _list_tools(self) -> list[JsonObject]:
        tools: list[JsonObject] = []
        params: JsonObject = {}
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await self._request("tools/list", params)
            listed, cursor = page.get("tools"), page.get("nextCursor")
            is_list = isinstance(listed, list)
            self._rules.expect(is_list, "the result of tools/list must have a list of tools")
            for tool in cast("list[object]", listed) if is_list else ():
                self._rules.expect(isinstance(tool, dict), "a tool must be an object")
                tools.append(as_object(tool))
            if cursor is None:
                break
            self._rules.expect(isinstance(cursor, str), "nextCursor must be a text")
            self._raise_problems()
            self._rules.expect(cursor not in seen, f"the cursor {cursor!r} comes twice")
            self._raise_problems()
            seen.add(cursor)
            params = {"cursor": cursor}
        return tools

    def _check_tools(self) -> None:
        names = [tool.get("name") for tool in self.listed]
        for name in {str(name) for name in names if names.count(name) > 1}:
            self._rules.broken.append(f"two tools are named {name!r}")
        for tool in self.listed:
            name = tool.get("name")
            valid = isinstance(name, str) and re.fullmatch(TOOL_NAME, name) is not None
            self._rules.expect(valid, f"invalid name of a tool: {name!r}")
            self._check_fields(str(name), tool, TOOL_FIELDS)
            for key in ("inputSchema", "outputSchema"):
                schema = tool.get(key, {"type": "object"} if key == "outputSchema" else None)
                typed = isinstance(schema, dict) and cast("Any", schema).get("type") == "object"
                self._rules.expect(typed, f"{key} of {name} must have the type object")
                if typed:
                    try:
                        compile_validator(cast("JsonObject", schema), str(name))
                    except UsageError as error:
                        self._rules.broken.append(f"{key} of {name}: {error.what}")
        self._raise_problems()

    def _check_result(self, name: str, result: JsonObject) -> tuple[Content, ...]:
        """Return the content of a result, held against the rules and the schema of its tool."""
        blocks = result.get("content")
        self._rules.expect(
            isinstance(blocks, list), f"the result of {name} must have a list as content"
        )
        self._check_fields(f"the result of {name}", result, RESULT_FIELDS)
        content: list[Content] = []
        for block in as_objects(blocks):
            kind = str(block.get("type"))
            self._rules.expect(kind in BLOCK_FIELDS, f"unknown type of content {kind!r} of {name}")
            self._check_block(f"{kind} content of {name}", kind, block)
            content.append(read_block(kind, block))
        tool = next((tool for tool in self.listed if tool["name"] == name), JsonObject())
        schema, value = tool.get("outputSchema"), result.get("structuredContent")
        if schema is not None and not result.get("isError"):
            errors = compile_validator(schema, name)(value)
            wrong = errors[0].message if errors else ""
            self._rules.expect(
                not errors, f"structuredContent of {name} must match its schema: {wrong}"
            )
        return tuple(content)


def _is_kind(value: object, kind: str) -> bool:
    if not isinstance(value, KINDS[kind]):
        return False
    if kind == "base64":
        try:
            b64decode(cast("str", value), validate=True)
        except ValueError:
            return False
    return True


def _read_sampled(message: JsonObject) -> Message:
    content: object = message.get("content")
    blocks = (
        [as_object(content)] if not isinstance(content, list) else as_objects(message["content"])
    )
    role = "assistant" if message.get("role") == "assistant" else "user"
    return Message(role, tuple(read_block(str(block.get("type")), block) for block in blocks))
