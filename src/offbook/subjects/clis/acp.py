"""Agents that speak the Agent Client Protocol (ACP), as editors start them.

    with drive(Acp(GeminiCli(approval="default"))) as rehearsal:
        rehearsal.run(when("Tidy up", [
            call("shell", {"command": "rm notes.txt"}),
            person("shell", allow),
            say("Done."),
        ]))

One process serves all prompts: JSON-RPC on its standard streams. Its model is the endpoint of the
run, so scripts, checks and tool calls are those of the command-line agent. The client is ours: it
answers permission requests by the script, and offers files and terminals (`AcpHost`).

Updates of the agent (messages, tool calls with their diffs, plans) are `process.event` in the
trace, and a plan is also `plan`. What the agent asks of the client is `host.call`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from offbook.errors import DeadlineExceeded, OffbookError, RunError, UsageError, signal_name
from offbook.exchange.json_rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    JsonObject,
    RpcError,
    as_object,
    as_objects,
)
from offbook.exchange.people import Allow, Answer, Deny, PersonQuestion
from offbook.subjects.clis.cli import (
    PROCESS_EVENT,
    PROCESS_RESULT,
    AgentOutput,
    CliAgent,
    CliOptions,
    PlainCommand,
    parse_mcp_servers,
)
from offbook.subjects.process import StandardInput, converse
from offbook.subjects.rpc_process import ProtocolRules, RpcProcess
from offbook.subjects.subject import PlainSubject
from offbook.trace.events import (
    PLAN,
    REPLY,
    TOOL_CALL,
    HostCallData,
    ProcessStartData,
    ToolCallData,
    Verdict,
)
from offbook.version import VERSION

if TYPE_CHECKING:
    from offbook.exchange.model import ToolAliases
    from offbook.subjects.process import ProcessResult
    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.events import Event

PROTOCOL_VERSION = 1
AUTH_REQUIRED, RESOURCE_NOT_FOUND = -32000, -32002
OUTPUT_LIMIT = 1024 * 1024  # of a terminal
START_SECONDS = 120.0  # a busy machine needs a minute to start Node
STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
UPDATES = (
    *CHUNKS,
    *("tool_call", "tool_call_update", "plan", "plan_update", "plan_removed"),
    *("available_commands_update", "current_mode_update", "config_option_update"),
    *("session_info_update", "usage_update"),
)


class Acp(PlainSubject):
    """An agent that speaks ACP: a known client, or a command.

    Acp(OpenCode())
    Acp(["my-agent", "--acp"])

    A command has the options of every client, such as `env` and `deadline`. With `files` and
    `terminals`, the client offers to read and write files and to run commands; without, the agent
    uses its own tools. With `reload`, each prompt after the first starts the agent again and loads
    its session.

    After a prompt, `output` has the agent's last message and the id of the session.
    """

    model_access: ModelAccess = "endpoint"

    def __init__(
        self,
        agent: CliAgent | str | Sequence[str],
        *,
        files: bool = False,
        terminals: bool = False,
        reload: bool = False,
        **options: Unpack[CliOptions],
    ) -> None:
        if isinstance(agent, CliAgent):
            if options:
                name = next(iter(options))
                raise UsageError(
                    f"Acp takes {name!r} for a command only",
                    hint=f"give it to the client: {type(agent).__name__}({name}=…)",
                )
            self._agent = agent
        else:
            servers = options.pop("mcp", {})
            self._agent = PlainCommand(agent, **options)
            if not self._agent.name:
                raise UsageError("the command is empty", hint='write Acp(["my-agent", "--acp"])')
            self._agent.mcp_servers = parse_mcp_servers(servers)
        self._files, self._terminals, self._reload = files, terminals, reload
        self.output = AgentOutput()
        self.info: JsonObject = {}
        self._process: RpcProcess | None = None
        self._host: AcpHost | None = None
        self._rules = ProtocolRules()

        self._ends: list[Verdict] = []

    @property
    def name(self) -> str:
        """The name of the agent, as it has without ACP."""
        return self._agent.name

    @property
    def tool_aliases(self) -> ToolAliases:
        """Those of the client."""
        return getattr(self._agent, "tool_aliases", {})

    def server_tool_name(self, server: str, tool: str) -> str:
        """Return the name that the client gives to a tool of an MCP server."""
        return self._agent.server_tool_name(server, tool)

    # --- The process

    async def open(self, context: RunContext, /) -> None:
        """Start the agent and its session."""
        agent = self._agent
        self._context = context
        self._rules, self._ends = ProtocolRules(), []
        self._calls: list[ToolCallData] = []
        self.output = AgentOutput()
        context.hub.subscribe(self._on_reply, REPLY)
        context.hub.subscribe(self._on_tool_call, TOOL_CALL)
        # The servers are part of the session: the files of the client do not have them.
        servers = {s.name: s.command for s in context.servers}
        self._servers = {**agent.mcp_servers, **parse_mcp_servers(servers)}
        agent.mcp_servers = {}
        alone = msgspec.structs.replace(context, servers=())
        await agent.prepare(alone, agent.acp_client or agent.client)
        agent.mcp_servers = self._servers
        self._launch = agent.acp_launch()
        await self._start()

    async def _start(self) -> None:
        context, launch = self.context, self._launch
        self._host = AcpHost(context, self._agent.home, self._agent.process_env)
        self._updates: list[JsonObject] = []
        self._replied = 0
        self._tool_calls: set[str] = set()
        self._failure: Exception | None = None
        process = self._process = RpcProcess(
            self.name, self._respond, self._on_notification, rules=self._rules
        )
        context.hub.emit_data(ProcessStartData(launch.command, "acp"))
        env = {**self._agent.process_env, **launch.env, "PWD": str(context.cwd)}
        process.start(launch.command, cwd=context.cwd, env=env, seal=context.seal)
        files = {"readTextFile": self._files, "writeTextFile": self._files}
        client = {"name": "offbook", "title": "Offbook", "version": VERSION}
        capabilities = {"fs": files, "terminal": self._terminals}
        info = await self._request(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": capabilities,
                "clientInfo": client,
            },
        )
        self.info = as_object(info)
        version = self.info.get("protocolVersion")
        self._rules.expect(version == PROTOCOL_VERSION, f"unknown protocol version {version!r}")
        session = self.output.session
        if session:
            able = as_object(self.info.get("agentCapabilities")).get("loadSession") is True
            self._rules.expect(able, "reload needs an agent with the capability loadSession")
            if able:
                await self._open_session("session/load", {"sessionId": session})
                replayed = [u for u in self._updates if u.get("sessionUpdate") in CHUNKS]
                self._rules.expect(bool(replayed), "session/load must send the messages so far")
                self._updates.clear()
        else:
            opened = await self._open_session("session/new", {})
            session = str(opened.get("sessionId") or "")
            self._rules.expect(bool(session), "the result of session/new must have a sessionId")
        self.output = AgentOutput(session=session)
        self._raise_problems()
        for method, params in launch.settings.items():
            await self._request(method, {"sessionId": session, **params})

    async def _open_session(self, method: str, params: JsonObject) -> JsonObject:
        servers: list[JsonObject] = [
            {"name": name, "command": server["command"], "args": server["args"], "env": []}
            for name, server in self._servers.items()
        ]
        cwd = str(self.context.cwd)
        try:
            opened = await self._request(method, {**params, "cwd": cwd, "mcpServers": servers})
            return as_object(opened)
        except RpcError as error:
            methods = [method.get("id") for method in self.info.get("authMethods") or ()]
            if error.code != AUTH_REQUIRED or not methods:
                raise self._failed(method, error) from error
            raise UsageError(
                f"{self.name} requires to sign in: {error}",
                hint=f"its methods: {methods}; set the key that it reads with env={{…}}",
            ) from error

    async def _request(
        self, method: str, params: JsonObject, deadline: float = START_SECONDS
    ) -> Any:
        process = cast("RpcProcess", self._process)
        return await process.request(method, params, deadline=deadline)

    def _failed(self, method: str, error: RpcError) -> RunError:
        details = "" if error.data is None else f": {msgspec.json.encode(error.data).decode()}"
        lines = "" if self._process is None else self._process.last_lines()
        return RunError(f"{self.name} failed in {method}: {error}{details}", hint=lines)

    async def _stop(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            await host.close()
        process, self._process = self._process, None
        if process is not None:
            await process.close()
            self._ends += process.ends

    async def close(self) -> None:
        """End the agent and delete its home."""
        await self._stop()
        await self._agent.close()

    # --- A prompt

    async def prompt(self, text: str, /) -> str | None:
        """Send a prompt, and wait until the agent ends its turn; return its last message."""
        if self._reload and self.output.text:
            await self._stop()
            await self._start()
        self._updates.clear()
        self._replied = 0
        self._failure = None
        session = self.output.session
        content = [{"type": "text", "text": text}]
        params = {"sessionId": session, "prompt": content}
        deadline = self.context.deadline or self._agent.deadline
        try:
            result = await self._request("session/prompt", params, deadline)
        except RpcError as error:
            raise self._failure or self._failed("session/prompt", error) from error
        except DeadlineExceeded:
            await self._stop()
            raise
        finally:  # at the end: between the requests, the order of updates is random
            for update in _join_chunks(self._updates):
                self.context.hub.emit(PROCESS_EVENT, update)
                if update.get("sessionUpdate") == "plan":
                    self.context.hub.emit(PLAN, {"plan": {"entries": update.get("entries")}})
        reason = as_object(result).get("stopReason")
        self._rules.expect(reason in STOP_REASONS, f"unknown stopReason {reason!r}")
        self._raise_problems()
        if self._failure is not None:
            raise self._failure
        # What the agent said after the last reply of its model, or after its last tool.
        message = _join_text(self._updates[self._replied :]) or _join_text(self._updates)
        self.output = AgentOutput(message, session)
        data: JsonObject = {"text": message, "session": session, "stop": reason}
        self.context.hub.emit(PROCESS_RESULT, data)
        return message or None

    # --- What the agent sends

    def _on_notification(self, method: str, params: JsonObject) -> None:
        if method.startswith("_") or self._process is None:  # an extension of the protocol
            return
        update = params.get("update")
        if method != "session/update" or not isinstance(update, dict):
            self._rules.broken.append(f"unknown notification {method!r}")
            return
        update = cast("JsonObject", update)
        kind, call = update.get("sessionUpdate"), str(update.get("toolCallId"))
        self._rules.expect(kind in UPDATES, f"unknown update {kind!r}")
        if kind == "tool_call":
            self._tool_calls.add(call)
        elif kind == "tool_call_update":
            self._rules.expect(
                call in self._tool_calls, f"an update of the unknown tool call {call!r}"
            )
        self._updates.append(update)

    async def _respond(self, method: str, params: JsonObject) -> Any:
        """Answer a request of the agent: its question to the person, or a file or a terminal."""
        if method == "session/request_permission":
            return await self._ask_permission(params)
        kind = method.partition("/")[0]
        offered = {"fs": self._files, "terminal": self._terminals}.get(kind, False)
        if not offered or self._host is None:
            self._rules.broken.append(f"the agent sent {method!r}, which the client does not offer")
            raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)
        return await self._host.respond(method, params)

    async def _ask_permission(self, params: JsonObject) -> JsonObject:
        call, options = as_object(params.get("toolCall")), as_objects(params.get("options"))
        self._tool_calls.add(str(call.get("toolCallId")))  # some announce a call by the request
        made = self._find_call(call)
        if made is None:
            question = PersonQuestion(str(call.get("title") or ""))
        else:
            question = PersonQuestion(str(call.get("title") or ""), made.tool, made.input)
        self._rules.expect(options, "a permission request must have options")
        try:
            chosen = _choose_option(await self.context.ask(question), question, options)
        except OffbookError as error:  # it fails the run; the agent is to stop
            self._failure = self._failure or error
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    def _on_reply(self, _: Event) -> None:
        self._calls.clear()
        self._replied = len(self._updates)

    def _on_tool_call(self, event: Event) -> None:
        self._calls.append(ToolCallData.read(event))

    def _find_call(self, call: JsonObject) -> ToolCallData | None:
        """Return the model's call that a permission is about: ACP has no names of tools."""
        call_id, given = str(call.get("toolCallId")), call.get("rawInput")
        for made in self._calls:
            if call_id.endswith(made.call_id):  # some clients put the name of the tool first
                return made
        candidates = [made for made in self._calls if made.input == given] or self._calls
        return candidates[0] if len(candidates) == 1 else None

    # --- The rules of the protocol

    def _raise_problems(self) -> None:
        page = "https://agentclientprotocol.com/protocol"
        self._rules.raise_broken(f"{self.name} breaks the protocol", page)

    def verdicts(self) -> Iterable[Verdict]:
        """Return the verdicts on all messages of the agent, and on its end."""
        yield from self._ends
        yield self._rules.verdict("ACP")


def _choose_option(
    answer: Answer, question: PersonQuestion, options: Sequence[Mapping[str, Any]]
) -> str:
    """Return the option that an answer selects: by its kind, or by its name."""
    about = question.tool or question.text
    if isinstance(answer, Allow) and answer.params is not None:
        raise UsageError(f"ACP cannot change the parameters of {about}", hint="write allow")
    kinds: tuple[str, ...] = ()
    if isinstance(answer, Allow):
        kinds = ("allow_once", "allow_always")
    elif isinstance(answer, Deny):
        kinds = ("reject_once", "reject_always")
    for kind in kinds:
        for option in options:
            if option.get("kind") == kind:
                return str(option["optionId"])
    for option in options:
        if answer in (option.get("name"), option.get("optionId")):
            return str(option["optionId"])
    names = [option.get("name") for option in options]
    raise UsageError(
        f"the agent offers no such answer about {about}: {answer!r}",
        hint=f"write allow, deny or one of {names}",
    )


def _chunk_text(update: Mapping[str, Any]) -> str:
    return str(as_object(update.get("content")).get("text", ""))


def _join_text(updates: Iterable[JsonObject]) -> str:
    """Return the text of the agent after its last tool call."""
    texts: list[str] = []
    for update in updates:
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            texts.append(_chunk_text(update))
        elif kind in {"tool_call", "tool_call_update"}:
            texts.clear()
    return "".join(texts)


def _join_chunks(updates: Iterable[JsonObject]) -> Iterable[JsonObject]:
    """Yield the updates; consecutive chunks of one message are joined."""
    pending: JsonObject = {}
    for update in updates:
        kind = update.get("sessionUpdate")
        if kind not in CHUNKS or "text" not in as_object(update.get("content")):
            if pending:
                yield pending
            pending = {}
            yield update
        elif pending and pending["sessionUpdate"] == kind:
            text = _chunk_text(pending) + _chunk_text(update)
            pending = {**pending, "content": {"type": "text", "text": text}}
        else:
            if pending:
                yield pending
            pending = update
    if pending:
        yield pending


# --- Files and terminals
#
# Files are read and written below the working directory and the agent's home, and nowhere else.
# A terminal is a process of the supervisor. Each request is a `host.call` in the trace.


class AcpHost:
    """The files and terminals of one process of an agent."""

    def __init__(self, context: RunContext, home: Path, env: Mapping[str, str]) -> None:
        self._context = context
        self._roots = (context.cwd.resolve(), home.resolve())
        self._env = env
        self._terminals: dict[str, _Terminal] = {}
        self._started = 0

    async def respond(self, method: str, params: JsonObject) -> Any:
        """Return the result of a request of the agent."""
        capability, _, operation = method.partition("/")
        given = {name: value for name, value in params.items() if name != "sessionId"}
        call = HostCallData(capability, operation, given, "real")
        try:
            result = await self._call(method, given)
        except (RpcError, OffbookError) as error:
            self._context.hub.emit_data(msgspec.structs.replace(call, error=str(error)))
            raise
        self._context.hub.emit_data(msgspec.structs.replace(call, result=result))
        return result

    async def _call(self, method: str, params: JsonObject) -> Any:
        match method:
            case "fs/read_text_file":
                return {"content": self._read(params)}
            case "fs/write_text_file":
                path = self._path(params)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(params.get("content", "")), encoding="utf-8")
                return None
            case "terminal/create":
                self._started += 1
                name = f"terminal-{self._started}"
                self._terminals[name] = self._create(params)
                return {"terminalId": name}
            case "terminal/output":
                return self._terminal(params).output()
            case "terminal/wait_for_exit":
                return await self._terminal(params).wait()
            case "terminal/kill":
                await self._terminal(params).kill()
                return None
            case "terminal/release":
                await self._terminal(params).kill()
                del self._terminals[str(params.get("terminalId"))]
                return None
            case _:
                raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)

    async def close(self) -> None:
        """Kill the terminals that are left."""
        for terminal in self._terminals.values():
            await terminal.kill()
        self._terminals.clear()

    # --- Files

    def _path(self, params: JsonObject) -> Path:
        path = Path(str(params.get("path", "")))
        if not path.is_absolute():
            raise RpcError(f"the path must be absolute: {str(path)!r}", INVALID_PARAMS)
        resolved = path.resolve()
        if not any(resolved.is_relative_to(root) for root in self._roots):
            raise RpcError(f"{path} is outside of the working directory", INVALID_PARAMS)
        return resolved

    def _read(self, params: JsonObject) -> str:
        path = self._path(params)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RpcError(f"cannot read {path}: {error}", RESOURCE_NOT_FOUND) from error
        line, limit = params.get("line"), params.get("limit")
        if line is None and limit is None:
            return text
        start = max((line or 1) - 1, 0)
        lines = text.splitlines(keepends=True)[start:]
        return "".join(lines if limit is None else lines[:limit])

    # --- Terminals

    def _create(self, params: JsonObject) -> _Terminal:
        command = str(params.get("command", ""))
        arguments: list[str] = params.get("args") or []
        # Without arguments it is a line of a shell.
        words = [command, *arguments] if arguments else ["bash", "-c", command]
        added = {item["name"]: item["value"] for item in params.get("env") or ()}
        cwd = Path(params["cwd"]) if params.get("cwd") else self._context.cwd
        limit = params.get("outputByteLimit")
        return _Terminal(
            words, cwd, {**self._env, **added}, OUTPUT_LIMIT if limit is None else limit
        )

    def _terminal(self, params: JsonObject) -> _Terminal:
        name = str(params.get("terminalId"))
        if name not in self._terminals:
            raise RpcError(f"unknown terminal {name!r}", RESOURCE_NOT_FOUND)
        return self._terminals[name]


class _Terminal:
    """A command that runs; its two streams are one, of which the last `limit` bytes are kept."""

    def __init__(self, words: list[str], cwd: Path, env: Mapping[str, str], limit: int) -> None:
        self._output, self._dropped, self._limit = b"", False, limit
        stdin = StandardInput()
        self._task: asyncio.Task[ProcessResult] = asyncio.create_task(
            converse(words, cwd=cwd, env=env, stdin=stdin, watch=self._receive)
        )
        self._killed = False

    def _receive(self, _stream: str, data: bytes) -> None:
        output = self._output + data
        self._dropped = self._dropped or len(output) > self._limit
        self._output = output[-self._limit :] if self._limit else b""

    def output(self) -> JsonObject:
        """Return its output so far, and its exit if it has ended."""
        text = self._output.decode("utf-8", "replace" if not self._dropped else "ignore")
        status = self._exit() if self._task.done() else None
        return {"output": text, "truncated": self._dropped, "exitStatus": status}

    async def wait(self) -> JsonObject:
        """Wait for its end."""
        await asyncio.wait([self._task])
        return self._exit()

    async def kill(self) -> None:
        """End it, if it still runs."""
        if not self._task.done():
            self._killed = True
            self._task.cancel()
        await asyncio.wait([self._task])

    def _exit(self) -> JsonObject:
        if self._killed or self._task.cancelled():
            return {"exitCode": None, "signal": signal_name(signal.SIGKILL)}
        code = self._task.result().code
        if code < 0:
            return {"exitCode": None, "signal": signal_name(-code)}
        return {"exitCode": code, "signal": None}
