"""`offbook init`: a first test of an agent, written from a run of it, that proves itself.

It lists what can be driven, runs the best of it once against a model that plays along, writes the
test of what happened, and breaks each tool to see whether the test notices.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.cli_options import echo, json_option, print_json
from offbook.errors import RunError, UsageError, counted
from offbook.exchange.tool_effects import HANDOFFS, LAST_TOOLS
from offbook.explore.broken_tools import (
    BREAKS,
    BrokenPlaybook,
    break_imports,
    find_tool_code,
    find_tool_values,
    looks_useless,
    prompt_breaker,
    tool_breaker,
)
from offbook.explore.candidates import RANKS, Candidate, scan_project
from offbook.explore.first_test import FirstTest, write_playbook, write_python_test
from offbook.explore.obliging_model import Settings
from offbook.explore.observed_run import (
    ObservedRun,
    in_child,
    observe,
    prepare_imports,
    run_program,
)
from offbook.secrets import excerpt
from offbook.secrets.masks import ending

if TYPE_CHECKING:
    from offbook.explore.candidates import ProjectScan

MOST_RUNS = 16
MOST_SHOWN = 6
MOST_LINES = 8  # of an error
MOST_TRIES = 3  # other candidates, if the best cannot be run

INIT_EXAMPLE = """\b
Example:
  offbook init
  offbook init shop.agent:build_agent
  offbook init -- node agent.mjs {prompt}
  offbook init --example

\b
The agent runs once against a model that calls each of its tools. Nothing leaves
the machine. Tools that write files, send mail or pay are mocked.

\b
Exit codes:
  0  the test was written and passes
  1  no test could be written: the output shows why, and what to write by hand
  2  wrong usage, or a file of that name exists
"""

EXAMPLE_AGENT = '''\
"""An example agent: an extension with two tools and a rule. Replace it with your own."""

ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


class Shop:
    """Refunds an order only after it was looked up."""

    def __init__(self):
        self.found = set()
        self.refunded = []

    def __call__(self, api):
        """Register the tools. Offbook calls this when a session starts."""

        @api.tool("find_order", "Look up an order.", ORDER)
        def find_order(params, ctx):
            self.found.add(params["id"])
            return f"order {params['id']}: one kettle, 30 EUR"

        @api.tool("refund", "Refund an order.", ORDER)
        def refund(params, ctx):
            if params["id"] not in self.found:
                return {"content": "look up the order first", "is_error": True}
            self.refunded.append(params["id"])
            return f"refunded order {params['id']}"
'''

EXAMPLE_TEST = '''\
"""The model is scripted here; the agent and its tools run for real."""

from offbook import call, say, when
from shop import Shop


def test_an_order_is_not_refunded_before_it_is_found(offbook):
    shop = Shop()
    run = offbook.session(extensions=[shop]).run(
        when("Refund order 7", [
            call("refund", {"id": 7}),  # the model forgets to look up the order
            say("I have to look it up first."),
        ]),
    )
    assert shop.refunded == []
    assert run.results("refund")[0].text == "look up the order first"
'''


Say = Callable[[str], object]


def _say_nothing(_: str) -> None:
    """Print nothing: the output is JSON."""


class Proof(msgspec.Struct):
    """Which breaks the test noticed: by tool, and of the system prompt."""

    noticed: dict[str, list[str]] = {}
    missed: dict[str, list[str]] = {}
    unknown: list[str] = []  # tools whose code was not found
    prompt: bool | None = None

    @property
    def tools(self) -> list[str]:
        """The tools that were broken."""
        return [*dict.fromkeys([*self.noticed, *self.missed])]


@click.command("init", epilog=INIT_EXAMPLE)
@click.argument("words", metavar="[FOLDER] [MODULE:NAME] [-- COMMAND…]", nargs=-1)
@click.option("--mock", multiple=True, metavar="TOOL", help="Replace a tool; repeatable.")
@click.option(
    "--with", "given", multiple=True, metavar="NAME=EXPRESSION", help="A value for a parameter."
)
@click.option("--example", is_flag=True, help="Write an example agent and its test instead.")
@click.option("--no-run", is_flag=True, help="Only list what can be driven.")
@json_option
def init(
    words: tuple[str, ...],
    *,
    mock: tuple[str, ...],
    given: tuple[str, ...],
    example: bool,
    no_run: bool,
    as_json: bool,
) -> int:
    """Write a first test for the agent of a project, from a run of the agent.

    Without a target it lists what can be driven and takes the best. An empty folder gets an
    example.
    """
    root, target, command = _read_words(words)
    scan = scan_project(root)
    say: Say = _say_nothing if as_json else echo
    if example or (scan.empty and not target and not command):
        return _write_example(root, say, as_json=as_json)
    arguments = dict(_read_argument(text) for text in given)
    candidates = _choose(scan, target, command, say)
    if no_run:
        if as_json:
            print_json({"candidates": candidates, "clients": scan.clients})
        return 0
    if sys.stdin.isatty() and sys.stdout.isatty() and len(candidates) > 1 and not as_json:
        number = click.prompt("which one?", default=1, type=click.IntRange(1, len(candidates)))
        candidates = [candidates[number - 1]]
    started = time.perf_counter()
    first = _First(scan, [*mock], arguments, say)
    candidate, test, proof = first.write(candidates)
    if as_json:
        print_json(
            {
                "candidate": candidate,
                "wrote": [str(path.relative_to(root)) for path in test.files],
                "command": test.command,
                "passed": True,
                "noticed": proof.noticed,
                "missed": proof.missed,
                "not_broken": proof.unknown,
                "system_prompt_noticed": proof.prompt,
                "mocked": first.settings.mocks,
            }
        )
        return 0
    for line in _describe_proof(proof):
        say(line)
    say(f"done in {time.perf_counter() - started:.0f} s; next: {test.command}")
    return 0


def _read_words(words: tuple[str, ...]) -> tuple[Path, str, list[str]]:
    """Return the folder, the target and the command of the command line."""
    separator = sys.argv.index("--") if "--" in sys.argv else 0
    command = sys.argv[separator + 1 :] if separator else []
    rest = list(words[: len(words) - len(command)])
    root = Path(rest.pop(0)) if rest and Path(rest[0]).is_dir() else Path()
    target = rest.pop(0) if rest else ""
    if rest or (target and ":" not in target):
        shown = rest[0] if rest else target
        raise UsageError(
            f"expected a folder or MODULE:NAME, got {shown!r}",
            hint=f"offbook init {Path(shown).stem}:NAME; offbook init --no-run lists the names"
            if Path(shown).suffix == ".py"
            else "for example offbook init shop.agent:build_agent",
        )
    return root.resolve(), target, command


def _read_argument(text: str) -> tuple[str, str]:
    name, separator, expression = text.partition("=")
    if not separator or not name.isidentifier():
        raise UsageError(f"expected NAME=EXPRESSION, got {text!r}", hint="--with deps='Deps()'")
    return name, expression


def _choose(scan: ProjectScan, target: str, command: list[str], say: Say) -> list[Candidate]:
    """Return the candidates to try, and list them."""
    if command:
        words = command if any("{prompt}" in word for word in command) else [*command, "{prompt}"]
        files = [word for word in words if (scan.root / word).is_file()]
        return [Candidate("command", "\x1f".join(words), "chosen", (files or [""])[0])]
    if target:
        known = [c for c in scan.candidates if c.target == target]
        return known or [_read_target(scan, target)]
    if not scan.candidates:
        for line in scan.unreadable:
            say(f"not read: {line}")
        for client in scan.clients:
            say(f"possible here: offbook.drive({client}())")
        raise UsageError(
            "no agent was found: no agent of a framework, no function that uses a provider's SDK,"
            " and no program that calls a model",
            where=str(scan.root),
            hint="name it: offbook init MODULE:NAME, or offbook init -- COMMAND {prompt};"
            " an example: offbook init --example",
        )
    for number, candidate in enumerate(scan.candidates[:MOST_SHOWN], 1):
        place = f"{candidate.file}:{candidate.line}"
        say(f"{number}. {candidate.shown}  {candidate.reason} ({place})")
    if more := scan.candidates[MOST_SHOWN:]:
        say(f"   and {len(more)} more")
    for client in scan.clients:
        say(f"also possible here: offbook.drive({client}())")
    if len(scan.candidates) > 1:
        say(f"to choose another: offbook init {scan.candidates[1].shown}")
    return scan.candidates


def _read_target(scan: ProjectScan, target: str) -> Candidate:
    """Return a candidate for a target that the scan does not list."""
    name, _, label = target.partition(":")
    module = next((m for m in scan.modules if m.name == name), None)
    if module is None:
        names = sorted(m.name for m in scan.modules)
        raise UsageError(
            f"no module {name!r} in this folder",
            hint=f"one of {', '.join(names[:8])}"
            if names
            else "run it in the folder of the project",
        )
    file = str(module.path.relative_to(scan.root))
    kind = "method" if "." in label else "agent"
    return Candidate(kind, target, "chosen", file, 1, RANKS["agent"])


def _write_example(root: Path, say: Say, *, as_json: bool) -> int:
    files = {root / "shop.py": EXAMPLE_AGENT, root / "test_shop.py": EXAMPLE_TEST}
    _write(root, files, say)
    passed, output = _run_pytest(root, root / "test_shop.py")
    if as_json:
        names = [path.name for path in files]
        print_json({"wrote": names, "command": "pytest test_shop.py", "passed": passed})
    say("it passes; next: pytest test_shop.py" if passed else output)
    return 0 if passed else 1


def _write(root: Path, files: dict[Path, str], say: Say) -> None:
    from offbook.files import write_atomic

    for path in files:
        if path.exists():
            name = str(path.relative_to(root))
            raise UsageError("file exists already", where=name, hint="run it, or move it away")
    for path, text in files.items():
        write_atomic(path, text)
        say(f"wrote {path.relative_to(root)}")


class _First:
    """The way from the candidates of a project to a test that passes."""

    def __init__(
        self, scan: ProjectScan, mocks: list[str], arguments: dict[str, str], say: Say
    ) -> None:
        self._scan = scan
        self._say = say
        self._mocks = mocks
        self._arguments = arguments
        self.settings = Settings()
        self._notes: list[str] = []

    def write(self, candidates: list[Candidate]) -> tuple[Candidate, FirstTest, Proof]:
        """Write the test of the first candidate that can be run, and prove it."""
        failures: list[tuple[Candidate, ObservedRun]] = []
        weak: tuple[Candidate, ObservedRun, Settings] | None = None
        for candidate in candidates[:MOST_TRIES]:
            self._say(f"running {candidate.shown} against a model that calls each of its tools")
            self.settings = Settings(
                root=str(self._scan.root), mocks=[*self._mocks], arguments=self._arguments
            )
            self._notes = []
            seen = self._observe(candidate)
            if seen.error or not seen.played:
                failures.append((candidate, seen))
                self._say(f"  it cannot be run: {_explain(seen)}")
                continue
            self._report(seen)
            if not seen.offered or seen.results:
                return self._prove(candidate, seen)
            self._say("  it sent no result of a tool: the caller of this function may do so")
            weak = weak or (candidate, seen, self.settings)
        if weak is None:
            raise _failure(failures)
        candidate, seen, self.settings = weak
        return self._prove(candidate, seen)

    # --- Observing

    def _run(self, candidate: Candidate) -> ObservedRun:
        value, output = in_child(_observe_in, str(self._scan.root), candidate, self.settings)
        if value is None:
            last = (output.strip().splitlines() or ["no output"])[-1]
            return ObservedRun(error=f"it did not end in time; its last line: {last}", logs=output)
        seen = msgspec.convert(value, ObservedRun)
        _import_modules(seen.loaded, self._scan)
        seen.logs = seen.logs or output
        return seen

    def _observe(self, candidate: Candidate) -> ObservedRun:
        """Run a candidate until each of its tools has worked once, or cannot."""
        settings = self.settings
        prompted = candidate.kind != "command"
        seen = ObservedRun()
        for _ in range(MOST_RUNS):
            seen = self._run(candidate)
            if not prompted and not any(settings.prompt in prompt for prompt in seen.prompts):
                # The program does not take the prompt as its argument: then by its input, or not
                # at all, if it has its own.
                if not settings.stdin:
                    settings.stdin = True
                    again = self._run(candidate)
                    if any(settings.prompt in prompt for prompt in again.prompts):
                        seen = again
                    else:
                        settings.stdin = False
                prompted = True
            if not self._adapt(seen):
                return seen
        return seen

    def _adapt(self, seen: ObservedRun) -> bool:
        """Change the settings for another run, after what was seen; return False if it is fine."""
        settings = self.settings
        # 1. A literal of the project may be what a tool looks up: known once its name is.
        unread = [tool for tool in seen.offered if tool not in settings.values]
        for tool in unread:
            settings.values[tool] = find_tool_values(tool, self._scan.modules)
        if any(settings.values[tool] for tool in unread) and seen.played:
            return True
        # 2. Tools with side effects can be mocked where the framework lets us.
        if mocks := [tool for tool in seen.effects if tool in seen.mockable]:
            settings.mocks += mocks
            for tool in mocks:
                self._notes.append(f"{tool} {seen.effects[tool]}: it is mocked")
            return True
        tool = seen.last_tool
        # 3. A tool that failed: with other arguments, or mocked, or left out.
        if seen.error:
            return bool(tool) and self._change(tool, seen, seen.error)
        # 4. A tool that ended the run before others were called is the last one to call.
        called = {played.tool for played in seen.played}
        others = set(seen.offered) - called - set(settings.skipped) - set(seen.effects)
        if tool and others and tool not in settings.last:
            settings.last.append(tool)
            return True
        # 5. A result that says that the arguments were wrong.
        for result in seen.results:
            more = settings.choices.get(result.tool, 0) + 1
            known = not LAST_TOOLS.search(result.tool) and not HANDOFFS.search(result.tool)
            if (
                known
                and looks_useless(result.text)
                and not result.mocked
                and more < seen.alternatives.get(result.tool, 1)
            ):
                settings.choices[result.tool] = more
                return True
        return False

    def _change(self, tool: str, seen: ObservedRun, why: str) -> bool:
        settings = self.settings
        more = settings.choices.get(tool, 0) + 1
        if (
            not seen.refused
            and more < seen.alternatives.get(tool, 1)
            and tool not in settings.mocks
        ):
            settings.choices[tool] = more
            return True
        reason = f"it tried to reach {seen.refused[0]}" if seen.refused else _one_line(why)
        if tool in seen.mockable and tool not in settings.mocks:
            settings.mocks.append(tool)
            self._notes.append(f"{tool} is mocked: {reason}")
            return True
        if tool not in settings.skipped:
            settings.skipped.append(tool)
            self._notes.append(f"{tool} is not called: {reason}")
            return True
        return False

    def _report(self, seen: ObservedRun) -> None:
        calls = [played.tool for played in seen.played if played.tool]
        self._say(
            f"  it was offered {counted(len(seen.offered), 'tool')}, and called: "
            f"{', '.join(calls) or 'none'}"
        )
        notes = [f"{tool} {effect}: it is not called" for tool, effect in seen.effects.items()]
        for note in [*self._notes, *notes]:
            self._say(f"  {note}")

    # --- Writing and proving

    def _prove(self, candidate: Candidate, seen: ObservedRun) -> tuple[Candidate, FirstTest, Proof]:
        again = self._run(candidate)
        root = self._scan.root
        write = write_playbook if candidate.kind == "command" else write_python_test
        test = write(self._scan, candidate, self.settings, seen, again)
        _write(root, test.files, self._say)
        passed, output = self._play(candidate, test)
        raised = re.search(r"the tool (\w+) raised (.+)", output) if not passed else None
        if raised and self._change(raised[1], seen, raised[2]):
            # It raises in a part of the agent that handles it, such as an agent as a tool.
            for path in test.files:
                path.unlink()
            return self._prove(candidate, self._observe(candidate))
        if not passed:
            raise RunError(
                f"the test was written, but it fails:\n{_tail(output)}",
                where=str(test.path.relative_to(root)),
                hint=f"run it: {test.command}",
            )
        self._say("it passes")
        proof = Proof()
        for tool in test.checked:
            code = find_tool_code(tool, self._scan.modules)
            if candidate.kind != "command" and not code.found:
                proof.unknown.append(tool)
                continue
            for how in BREAKS:
                passed, _ = self._play(candidate, test, tool=tool, how=how)
                (proof.missed if passed else proof.noticed).setdefault(tool, []).append(how)
        if test.prompt_part:
            broken, _ = in_child(_play_test, str(root), str(test.path), "", "", test.prompt_part)
            proof.prompt = None if broken is None or not broken[1] else not broken[0]
        return candidate, test, proof

    def _play(
        self, candidate: Candidate, test: FirstTest, tool: str = "", how: str = ""
    ) -> tuple[bool, str]:
        """Return whether the test passes, with a tool that is broken in this way."""
        root = str(self._scan.root)
        if candidate.kind == "command":
            played, output = in_child(
                _play_command, candidate, self.settings, str(test.path), tool, how
            )
            return bool(played and played[0]), (played or ["", output])[1]
        played, output = in_child(_play_test, root, str(test.path), tool, how, "")
        if played:
            _import_modules(played[2], self._scan)
        return bool(played and played[0]), output


# --- In a separate process


def _observe_in(root: str, candidate: Candidate, settings: Settings) -> ObservedRun:
    prepare_imports(Path(root))
    return observe(candidate, settings)


def _play_test(
    root: str, test: str, tool: str, how: str, prompt_part: str
) -> tuple[bool, int, list[str]]:
    """Run pytest; return whether the test passed, how many places were broken, and the imports."""
    from offbook.explore.coverage_pytest import run_pytest

    os.chdir(root)
    count = lambda: 1  # noqa: E731 - replaced below
    if tool:
        code = find_tool_code(tool, scan_project(Path(root)).modules)
        count = break_imports(Path(root), tool_breaker(code, how))
    elif prompt_part:
        count = break_imports(Path(root), prompt_breaker(prompt_part))
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    if tool or prompt_part:  # only whether it fails is of interest
        plugins += ["--tb=no", "-p", "no:unraisableexception", "-p", "no:threadexception"]
    plugins += ["--offbook-traces", "never"]
    passed = run_pytest([test, "-q", "--no-header", "-x", *plugins])
    return passed, count(), [*sys.modules]


def _play_command(
    candidate: Candidate, settings: Settings, script: str, tool: str, how: str
) -> tuple[bool, str]:
    """Play the playbook; return whether the run passed, and why not."""
    from offbook.sources.loading import read_script
    from offbook.sources.playbook.playbook import Playbook

    playbook = BrokenPlaybook(tool, how) if tool else Playbook()
    playbook.load(*read_script(Path(script)))
    result = run_program(candidate, settings, playbook)
    return result.ok, "" if result.ok else f"{result.failure}\n{ending(result.errors, 500)}"


def _run_pytest(root: Path, test: Path) -> tuple[bool, str]:
    if importlib.util.find_spec("pytest") is None:
        raise UsageError("pytest is not installed", hint="pip install pytest")
    played, output = in_child(_play_test, str(root), str(test), "", "", "")
    return bool(played and played[0]), output


def _import_modules(names: list[str], scan: ProjectScan) -> None:
    """Import what a child imported, without the project: the next children have it."""
    own = {module.name.partition(".")[0] for module in scan.modules}
    own |= {path.stem for path in scan.root.glob("**/test_*.py")} | {"conftest", "tests", "test"}
    for name in names:
        if name not in sys.modules and name.partition(".")[0] not in own:
            try:
                import_module(name)
            except Exception:  # noqa: BLE001, S112 - some can only be imported by another one
                continue


# --- Messages


def _one_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return excerpt(line, 160)


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-12:])


def _explain(seen: ObservedRun) -> str:
    """Return why a candidate could not be run, in one line."""
    if seen.error:
        place = f"{seen.where}: " if seen.where else ""
        last = [line for line in seen.logs.splitlines() if line.strip()][-1:]
        more = f" ({last[0].strip()})" if last and seen.error_kind == "RunError" else ""
        return place + _one_line(seen.error) + more
    return "it made no request to a model"


def _failure(failures: list[tuple[Candidate, ObservedRun]]) -> RunError:
    """Return the error for a project whose agent could not be run, with the lines to write."""
    candidate, seen = failures[0]
    did = [played.tool or "an answer" for played in seen.played]
    lines = [
        f"no test was written: {_explain(seen)}",
        *(f"  {line.strip()}" for line in seen.error.splitlines()[1:MOST_LINES]),
        f"  candidates tried: {', '.join(c.shown for c, _ in failures)}",
        f"  the agent: made {counted(len(seen.prompts), 'request')}"
        + (f"; the model replied with {', '.join(did)}" if did else ""),
    ]
    if candidate.kind == "command":
        words = " ".join(candidate.words).replace("{prompt}", '"Hello"')
        lines += [
            "  by hand, agent.playbook.yaml:",
            "    - {when: Hello, do: [{say: Hi.}]}",
        ]
        hint = seen.missing or f"offbook run --script agent.playbook.yaml -- {words}"
    else:
        module, _, name = candidate.target.partition(":")
        lines += [
            "  by hand, in a test with the fixture offbook:",
            f"    from {module} import {name.partition('.')[0]}",
            f'    run = offbook.drive({name}).run(when("Hello", [say("Hi.")]))',
        ]
        hint = seen.missing or f"repair it, then: offbook init {candidate.target}"
    return RunError("\n".join(lines), hint=hint)


def _describe_proof(proof: Proof) -> list[str]:
    """Return what the test notices, and what not."""
    lines: list[str] = []
    tools = proof.tools
    if tools:
        noticed = [tool for tool in tools if tool in proof.noticed]
        lines.append(f"{len(noticed)} of {counted(len(tools), 'broken tool')} noticed")
        for tool, ways in proof.missed.items():
            lines.append(f"  not noticed: {tool} that {', '.join(ways)}")
    lines += [f"  not broken: {t}, its code was not found in the project" for t in proof.unknown]
    if not any(proof.noticed):
        lines.append("the test notices no broken tool: assert on what the agent should do")
    if proof.prompt is not None:
        lines.append(f"a changed system prompt is {'' if proof.prompt else 'not '}noticed")
    return lines
