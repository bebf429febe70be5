"""One run of an agent against a model that plays along, and what the agent did in it."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.exchange.providers import all_providers
from offbook.explore.obliging_model import ObligingModel, PlayedCall, Settings
from offbook.explore.subject_plan import Planner, SubjectPlan
from offbook.secrets.masks import ending

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.model import ModelSource
    from offbook.explore.candidates import Candidate
    from offbook.runs.commands import CommandResult

# The variables in which SDKs look for a key.
KEYS = sorted({name for p in all_providers().values() for name in p.key_variables[:1] if p.sdks})


class SeenResult(msgspec.Struct, frozen=True):
    """The result of a tool, as the agent sent it back."""

    tool: str
    text: str
    failed: bool | None = None
    mocked: bool = False


class ObservedRun(msgspec.Struct):
    """What the agent did: the model's side, the results of its tools, its answer, and its end."""

    plan: SubjectPlan | None = None
    played: list[PlayedCall] = []
    results: list[SeenResult] = []
    offered: list[str] = []
    effects: dict[str, str] = {}
    alternatives: dict[str, int] = {}
    prompts: list[str] = []
    systems: list[str] = []
    output: Any = None
    output_kind: str = "none"  # json, fields or none
    mockable: list[str] = []
    refused: list[str] = []
    error: str = ""
    error_kind: str = ""
    where: str = ""
    missing: str = ""  # the hint for an argument
    logs: str = ""
    loaded: list[str] = []  # the modules that were imported

    @property
    def last_tool(self) -> str:
        """The tool that was called last, if no later request came."""
        return self.played[-1].tool if self.played else ""


def observe(candidate: Candidate, settings: Settings) -> ObservedRun:
    """Run a candidate once, in this process; its errors are a part of what is returned."""
    model = ObligingModel(settings)
    seen = ObservedRun()
    try:
        if candidate.kind == "command":
            _run_command(candidate, settings, model, seen)
        else:
            seen.plan = Planner(candidate, settings.arguments).plan()
            _run_subject(seen.plan, settings, model, seen)
    except BaseException as error:  # noqa: BLE001 - SystemExit of a program, too
        own = isinstance(error, UsageError)
        seen.error = error.what if own else f"{type(error).__name__}: {error}"
        seen.error_kind = type(error).__name__
        seen.where = _place_of(error, Path(settings.root))
        seen.missing = getattr(error, "hint", None) or ""
    seen.played, seen.offered = model.played, [*model.offered]
    seen.effects = {k: v for k, v in model.effects.items() if k not in settings.mocks}
    seen.alternatives, seen.prompts, seen.systems = model.alternatives, model.prompts, model.systems
    seen.loaded = [*sys.modules]
    return seen


def _run_subject(
    plan: SubjectPlan, settings: Settings, model: ObligingModel, seen: ObservedRun
) -> None:
    from offbook.runs.api import drive
    from offbook.trace.query import Events

    subject, options = plan.build()
    mocks = dict.fromkeys(settings.mocks, "done")
    with drive(
        subject, source=model, mock_tools=mocks or None, allow_unused_mocks=True, **options
    ) as rehearsal:
        adapter: Any = getattr(rehearsal.subject, "adapter", None)
        seen.mockable = [*(adapter.tools() or {})] if adapter is not None else []
        try:
            run = rehearsal.run(settings.prompt)
            _read_output(run.output, seen)
        finally:
            _read_events(Events(rehearsal.read_events), seen)


def _run_command(
    candidate: Candidate, settings: Settings, model: ObligingModel, seen: ObservedRun
) -> None:
    from offbook.trace.query import Events

    result = run_program(candidate, settings, model)
    _read_events(Events(result.events), seen)
    seen.output, seen.output_kind = result.output.strip(), "json"
    seen.logs = ending(result.output + result.errors, 2000)
    if result.failure is not None:
        raise result.failure


def run_program(candidate: Candidate, settings: Settings, model: ModelSource) -> CommandResult:
    """Run the command of a project against a model."""
    from offbook.runs.commands import run_command

    words = command_words(candidate, settings)
    return run_command(
        model,
        [sys.executable if word == "python" and not n else word for n, word in enumerate(words)],
        cwd=Path(settings.root),
        stdin=f"{settings.prompt}\n".encode() if settings.stdin else b"",
        echo=False,
        deadline=60,
    )


def command_words(candidate: Candidate, settings: Settings) -> list[str]:
    """Return the words of a command with the prompt; without it if it reads its input."""
    words = candidate.words
    if settings.stdin:
        return [word for word in words if word != "{prompt}"]
    return [word.replace("{prompt}", settings.prompt) for word in words]


def _read_events(events: Any, seen: ObservedRun) -> None:
    from offbook.trace.events import REFUSED, RefusedData

    seen.results = [
        SeenResult(record.tool_name, record.text, record.failed, record.mocked)
        for record in events.tool_results
    ]
    seen.refused = [RefusedData.read(e).destination for e in events.all if e.event == REFUSED]


def _read_output(output: Any, seen: ObservedRun) -> None:
    """Note the answer: as JSON, or the simple fields of an object."""
    if isinstance(output, (str, int, float, bool, list, dict)):
        try:
            seen.output, seen.output_kind = json.loads(json.dumps(output)), "json"
        except (TypeError, ValueError):
            return
        if seen.output != output:
            seen.output_kind = "none"
        return
    fields = getattr(output, "__dict__", {})
    simple = {
        name: value
        for name, value in fields.items()
        if isinstance(value, (str, int, float, bool)) and not name.startswith("_")
    }
    known = dataclasses.is_dataclass(output) or hasattr(output, "model_fields")
    if simple and known:
        seen.output, seen.output_kind = simple, "fields"


def _place_of(error: BaseException, root: Path) -> str:
    """Return the file and line of the project at which an exception was raised, or ""."""
    from traceback import extract_tb

    found = ""
    for frame in extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(root) and "site-packages" not in path.parts:
            found = f"{path.relative_to(root)}:{frame.lineno}"
    return found


def prepare_imports(root: Path) -> None:
    """Make the modules of a project importable, with keys that are not used."""
    os.chdir(root)
    for folder in (root, root / "src"):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    for name in KEYS:
        os.environ.setdefault(name, "not-used-in-tests")


def in_child(function: Callable[..., Any], *arguments: Any, deadline: float = 90.0) -> Any:
    """Call a function in a separate process, and return its value and its output.

    A fork has what this process imported already; the modules of the project are imported there
    again each time, so that no run sees the state of another.
    """
    import multiprocessing
    import tempfile

    context: Any = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    with tempfile.TemporaryFile() as output:
        child = context.Process(target=_call, args=(function, arguments, send, output.fileno()))
        child.start()
        send.close()
        value: Any = None
        try:
            if receive.poll(deadline):
                value = msgspec.msgpack.decode(receive.recv_bytes())
        except EOFError:
            pass
        timed_out = child.is_alive() and value is None
        if timed_out:
            child.kill()
        child.join(10)
        if child.is_alive():  # a thread that does not end
            child.kill()
            child.join()
        output.seek(0)
        text = output.read().decode(errors="replace")
    return value, text


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], send: Any, output: int) -> None:
    gc.freeze()  # a collection would copy every page of the parent
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    value = function(*arguments)
    sys.stdout.flush()
    send.send_bytes(msgspec.msgpack.encode(value))
    send.close()
    # Threads and exit handlers of the agent may not end.
    os._exit(0)
