"""The client of an ACP agent: its process, its session, and what the agent asks."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from offbook.errors import DeadlineExceeded, OffbookError, RunError, UsageError
from offbook.exchange.json_rpc import METHOD_NOT_FOUND, JsonObject, RpcError, as_object
from offbook.exchange.people import Allow, Answer, Deny, PersonQuestion
from offbook.subjects.clis.acp.acp_host import AcpHost
from offbook.subjects.clis.cli import (
    PROCESS_EVENT,
    PROCESS_RESULT,
    AcpLaunch,
    AgentOutput,
    CliAgent,
    CliOptions,
    parse_mcp_servers,
)
from offbook.subjects.rpc_process import RpcProcess
from offbook.subjects.subject import PlainSubject
from offbook.trace.events import PLAN, REPLY, TOOL_CALL, ProcessStartData, ToolCallData, Verdict
from offbook.version import VERSION

if TYPE_CHECKING:
    from offbook.exchange.model import ToolAliases
    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.events import Event

PROTOCOL_VERSION = 1
AUTH_REQUIRED = -32000
START_SECONDS = 120.0  # a busy machine needs a minute to start Node
STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
UPDATES = (
    *CHUNKS,
    *("tool_call", "tool_call_update", "plan", "plan_update", "plan_removed"),
    *("available_commands_update", "current_mode_update", "config_option_update"),
    *("session_info_update", "usage_update"),
)


class AcpCommand(CliAgent):
    """A command that speaks ACP."""

    def __init__(self, command: str | Sequence[str], **options: Unpack[CliOptions]) -> None:
        super().__init__(**options)
        self._words = shlex.split(command) if isinstance(command, str) else [*command]
        if not self._words:
            raise UsageError("the command is empty", hint='write Acp(["my-agent", "--acp"])')
        self.name = Path(self._words[0]).name

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - prompts are requests
        """Return the command."""
        return [*self._words, *self.arguments]

    def acp_launch(self) -> AcpLaunch:
        """Return the command as it is."""
        return AcpLaunch(self.command("", ""))


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
            self._agent = AcpCommand(agent, **options)
            self._agent.mcp_servers = parse_mcp_servers(servers)
        self._files, self._terminals, self._reload = files, terminals, reload
        self.output = AgentOutput()
        self.info: JsonObject = {}
        self._process: RpcProcess | None = None
        self._host: AcpHost | None = None
        self._checked = 0
        self._problems: list[str] = []
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
        self._checked, self._problems, self._ends = 0, [], []
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
        context, launch = self._context, self._launch
        self._host = AcpHost(context, self._agent.home, self._agent.process_env)
        self._updates: list[JsonObject] = []
        self._replied = 0
        self._tool_calls: set[str] = set()
        self._failure: Exception | None = None
        process = self._process = RpcProcess(self.name, self._respond, self._on_notification)
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
        process.expect(version == PROTOCOL_VERSION, f"unknown protocol version {version!r}")
        session = self.output.session
        if session:
            able = self._capabilities.get("loadSession") is True
            process.expect(able, "reload needs an agent with the capability loadSession")
            if able:
                await self._open_session("session/load", {"sessionId": session})
                replayed = [u for u in self._updates if u.get("sessionUpdate") in CHUNKS]
                process.expect(bool(replayed), "session/load must send the messages so far")
                self._updates.clear()
        else:
            opened = await self._open_session("session/new", {})
            session = str(opened.get("sessionId") or "")
            process.expect(bool(session), "the result of session/new must have a sessionId")
        self.output = AgentOutput(session=session)
        self._raise_problems()
        for method, params in launch.settings.items():
            await self._request(method, {"sessionId": session, **params})

    @property
    def _capabilities(self) -> JsonObject:
        return as_object(self.info.get("agentCapabilities"))

    async def _open_session(self, method: str, params: JsonObject) -> JsonObject:
        servers: list[JsonObject] = [
            {"name": name, "command": server["command"], "args": server["args"], "env": []}
            for name, server in self._servers.items()
        ]
        cwd = str(self._context.cwd)
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
            self._checked += process.checked
            self._problems += process.problems
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
        deadline = self._context.deadline or self._agent.deadline
        try:
            result = await self._request("session/prompt", params, deadline)
        except RpcError as error:
            raise self._failure or self._failed("session/prompt", error) from error
        except DeadlineExceeded:
            await self._stop()
            raise
        finally:
            self._emit_updates()
        reason = as_object(result).get("stopReason")
        if self._process is not None:
            self._process.expect(reason in STOP_REASONS, f"unknown stopReason {reason!r}")
        self._raise_problems()
        if self._failure is not None:
            raise self._failure
        message = self._last_message()
        self.output = AgentOutput(message, session)
        data: JsonObject = {"text": message, "session": session, "stop": reason}
        self._context.hub.emit(PROCESS_RESULT, data)
        return message or None

    def _last_message(self) -> str:
        """Return what the agent said after the last reply of its model, or after its last tool."""
        return _join_text(self._updates[self._replied :]) or _join_text(self._updates)

    def _emit_updates(self) -> None:
        """Emit the updates of a prompt at its end: between the requests, their order is random."""
        for update in _join_chunks(self._updates):
            self._context.hub.emit(PROCESS_EVENT, update)
            if update.get("sessionUpdate") == "plan":
                self._context.hub.emit(PLAN, {"plan": {"entries": update.get("entries")}})

    # --- What the agent sends

    def _on_notification(self, method: str, params: JsonObject) -> None:
        if method.startswith("_") or self._process is None:  # an extension of the protocol
            return
        process, update = self._process, params.get("update")
        if method != "session/update" or not isinstance(update, dict):
            process.problems.append(f"unknown notification {method!r}")
            return
        update = cast("JsonObject", update)
        kind, call = update.get("sessionUpdate"), str(update.get("toolCallId"))
        process.expect(kind in UPDATES, f"unknown update {kind!r}")
        if kind == "tool_call":
            self._tool_calls.add(call)
        elif kind == "tool_call_update":
            process.expect(call in self._tool_calls, f"an update of the unknown tool call {call!r}")
        self._updates.append(update)

    async def _respond(self, method: str, params: JsonObject) -> Any:
        """Answer a request of the agent: its question to the person, or a file or a terminal."""
        if method == "session/request_permission":
            return await self._ask_permission(params)
        kind = method.partition("/")[0]
        offered = {"fs": self._files, "terminal": self._terminals}.get(kind, False)
        if not offered or self._host is None:
            if self._process is not None:
                self._process.problems.append(
                    f"the agent sent {method!r}, which the client does not offer"
                )
            raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)
        return await self._host.respond(method, params)

    async def _ask_permission(self, params: JsonObject) -> JsonObject:
        call, given = as_object(params.get("toolCall")), params.get("options")
        listed = cast("list[object]", given) if isinstance(given, list) else []
        options = [as_object(option) for option in listed]
        self._tool_calls.add(str(call.get("toolCallId")))  # some announce a call by the request
        made = self._find_call(call)
        if made is None:
            question = PersonQuestion(str(call.get("title") or ""))
        else:
            question = PersonQuestion(str(call.get("title") or ""), made.tool, made.input)
        if self._process is not None:
            self._process.expect(bool(options), "a permission request must have options")
        try:
            chosen = _choose_option(await self._context.ask(question), question, options)
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
        problems = [] if self._process is None else self._process.take_problems()
        if problems:
            self._problems += problems
            raise RunError(
                f"{self.name} breaks the protocol: {'; '.join(problems)}",
                hint="https://agentclientprotocol.com/protocol",
            )

    def verdicts(self) -> Iterable[Verdict]:
        """Return the verdicts on all messages of the agent, and on its end."""
        yield from self._ends
        process = self._process
        problems = [*self._problems, *([] if process is None else process.problems)]
        checked = self._checked + (0 if process is None else process.checked)
        if problems:
            yield Verdict("ACP protocol", "fail", "; ".join(dict.fromkeys(problems)))
        else:
            yield Verdict("ACP protocol", "pass", actual=checked)


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
