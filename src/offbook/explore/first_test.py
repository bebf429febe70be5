"""Writes the first test of an agent from an observed run: the script, and what the agent did.

An agent in Python gets a test for pytest. A program in another language gets a playbook, and the
command that plays it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.exchange.python_source import identifier, literal
from offbook.exchange.tool_effects import HANDOFFS, LAST_TOOLS
from offbook.explore.candidates import source_files
from offbook.explore.observed_run import KEYS, command_words
from offbook.secrets import hide_secrets

if TYPE_CHECKING:
    from offbook.explore.candidates import Candidate, ProjectScan
    from offbook.explore.obliging_model import PlayedCall, Settings
    from offbook.explore.observed_run import ObservedRun, SeenResult

WIDTH = 92
LONGEST = 100  # characters of a result that a test quotes
LONGEST_PROMPT = 60
TEXT_FILES = (".txt", ".md", ".yaml", ".yml", ".toml", ".jinja", ".j2")
SHORTEST = 6  # characters that two results must have in common to be quoted
CONFTEST = '''\
"""Settings of all tests. pytest also puts this folder on sys.path."""

import os
{imports}
# The model is scripted, but SDKs ask for a key when their client is made.
for name in ({keys}):
    os.environ.setdefault(name, "not-used-in-tests")
{path}'''
SRC_PATH = 'sys.path.insert(0, str(Path(__file__).parent / "src"))\n'


class FirstTest(msgspec.Struct, frozen=True):
    """The files of a test by path, the one to run, and the tools whose results it checks."""

    files: dict[Path, str]
    path: Path
    command: str
    checked: tuple[str, ...]
    prompt_part: str = ""


def write_python_test(
    scan: ProjectScan,
    candidate: Candidate,
    settings: Settings,
    seen: ObservedRun,
    again: ObservedRun,
) -> FirstTest:
    """Return the test of an agent that is driven in the process of the test."""
    root, plan = scan.root, seen.plan
    assert plan is not None  # noqa: S101 - a run that was observed has one
    style = _read_style(root)
    name = _test_name(candidate)
    checks, checked = _check_results(seen, again)
    part = _prompt_part(seen, scan)
    words = sorted({"when", *("call" if played.tool else "say" for played in seen.played)})
    options = [f"{key}={text}" for key, text in plan.options.items()]
    used = [tool for tool in settings.mocks if any(p.tool == tool for p in seen.played)]
    if used:
        mocks = ", ".join(f'{literal(tool)}: "done"' for tool in used)
        options.append(f"mock_tools={{{mocks}}}")
    subject = plan.expression
    setup: list[str] = []
    if subject.startswith("lambda prompt: "):
        body = subject.removeprefix("lambda prompt: ")
        setup = ["    def send_prompt(prompt):", f"        return {body}", ""]
        subject = "send_prompt"
    drive = f"offbook.drive({', '.join([subject, *options])})"
    if len(drive) > WIDTH - 20:
        setup += [f"    rehearsal = {drive}"]
        drive = "rehearsal"
    wait = "await " if style.asynchronous else ""
    lines = [
        *(f"{marker}" for marker in style.markers),
        f"{'async ' if style.asynchronous else ''}def test_{name}(offbook):",
        *setup,
        f"    run = {wait}{drive}.run(",
        f"        when({literal(settings.prompt)}, [",
        *(f"            {_render(played, seen)}," for played in seen.played),
        "        ]),",
        "    )",
        *(f"    {line}" for check in checks for line in _wrap(check)),
        *(f"    {check}" for check in _check_output(seen, again)),
        *([f"    assert {literal(part)} in run.requests[0].system"] if part else []),
    ]
    real = "its tools run for real" if not used else "tools that are not mocked run for real"
    third, own = _split_imports(plan.imports, candidate)
    imports = [
        *style.imports,
        *sorted(line for line in third if line.startswith("import ")),
        *_group([f"from offbook import {', '.join(words)}", *third]),
        *_group(own),
    ]
    files: dict[Path, str] = {}
    preamble = _write_conftest(root, candidate, files)
    text = "\n".join(
        [
            f'"""A first test of {candidate.target}: the model is scripted, {real}."""',
            "",
            *preamble,
            *imports,
            "",
            "",
            *lines,
        ]
    )
    path = style.folder / f"test_{name}.py"
    shown = path.relative_to(root)
    return FirstTest({path: text + "\n", **files}, path, f"pytest {shown}", checked, part)


def write_playbook(
    scan: ProjectScan,
    candidate: Candidate,
    settings: Settings,
    seen: ObservedRun,
    again: ObservedRun,
) -> FirstTest:
    """Return the playbook of a program, and the command that plays it."""
    root, stable = scan.root, _stable_results(seen, again)
    stem = re.sub(r"\W+", "_", Path(candidate.file or candidate.words[0]).stem) or "agent"
    prompt = settings.prompt
    if prompt not in "".join(seen.prompts[:1]):  # the program has its own prompt
        prompt = (seen.prompts[0].strip().splitlines() or [""])[0][:60]
    lines = [f"- when: {_yaml(prompt)}", "  do:"]
    checked: list[str] = []
    for played in seen.played:
        if not played.tool:
            lines.append(f"    - say: {_yaml(played.text)}")
            continue
        lines.append(f"    - call: {_yaml(played.tool)}")
        if played.arguments:
            lines.append(f"      with: {_yaml(played.arguments)}")
        if _is_unanswered(played, seen):
            lines.append("      unanswered: true")
        elif part := stable.get(played.tool):
            lines.append(f"      result: {_yaml(part[1])}")
            checked.append(played.tool)
    tests = root / "tests" if (root / "tests").is_dir() else root
    path = tests / f"{stem}.playbook.yaml"
    words = command_words(candidate, settings)
    shown = shlex.join(words)
    if settings.stdin:
        shown = f"sh -c {shlex.quote(f'echo {shlex.quote(settings.prompt)} | {shown}')}"
    command = f"offbook run --script {path.relative_to(root)} -- {shown}"
    head = ["# The model is scripted here; the program and its tools run for real:", f"# {command}"]
    return FirstTest({path: "\n".join([*head, *lines]) + "\n"}, path, command, tuple(checked))


# --- The parts of a test


def _render(played: PlayedCall, seen: ObservedRun) -> str:
    if not played.tool:
        return f"say({literal(played.text)})"
    arguments = f", {literal(played.arguments)}" if played.arguments else ""
    ends = ", unanswered=True" if _is_unanswered(played, seen) else ""
    return f"call({literal(played.tool)}{arguments}{ends})"


def _is_unanswered(played: PlayedCall, seen: ObservedRun) -> bool:
    """Return whether a call has no result: it ended the run, or the run of an agent in a tool."""
    answered = any(result.tool == played.tool for result in seen.results)
    return played is seen.played[-1] or (bool(LAST_TOOLS.search(played.tool)) and not answered)


def _wrap(check: str) -> list[str]:
    """Return an assertion in lines that fit."""
    left, equal, right = check.partition(" == ")
    return [check] if len(check) <= WIDTH or not equal else [f"{left} == (", f"    {right}", ")"]


def _results_of(seen: ObservedRun) -> dict[str, SeenResult]:
    """Return the first result of each tool."""
    results: dict[str, SeenResult] = {}
    for result in seen.results:
        results.setdefault(result.tool, result)
    return results


def _stable_results(seen: ObservedRun, again: ObservedRun) -> dict[str, tuple[str, str]]:
    """Return how the result of each tool can be checked: `==`, `startswith` or `in`, and a text.

    Two runs show which part of it is always the same.
    """
    first, second = _results_of(seen), _results_of(again)
    found: dict[str, tuple[str, str]] = {}
    for tool, result in first.items():
        other = second.get(tool)
        text = result.text
        if other is None or result.mocked or _has_secret(text):
            continue
        if text == other.text and len(text) <= LONGEST and "\n" not in text:
            found[tool] = ("==", text)
            continue
        length = next(
            (n for n, pair in enumerate(zip(text, other.text, strict=False)) if pair[0] != pair[1]),
            min(len(text), len(other.text)),
        )
        # Of several lines, the longest of the first ones says most.
        lines = [line for line in text[:length].splitlines()[:5] if len(line) >= SHORTEST]
        if text == other.text and lines:
            found[tool] = ("in", max(lines, key=len)[:LONGEST])
        elif length >= SHORTEST:
            found[tool] = ("startswith", text[:length].splitlines()[0][:LONGEST])
    return found


def _check_results(seen: ObservedRun, again: ObservedRun) -> tuple[list[str], tuple[str, ...]]:
    """Return the assertions about the results of tools, and the tools that they check."""
    stable = _stable_results(seen, again)
    checks: list[str] = []
    checked: list[str] = []
    for tool, result in _results_of(seen).items():
        quoted = f"run.results({literal(tool)})[0]"
        if LAST_TOOLS.search(tool) or tool == seen.last_tool:  # the answer says it
            continue
        if result.mocked:
            checks.append(f"assert {literal(tool)} in run.tools")
            continue
        if (check := stable.get(tool)) is not None:
            how, text = check
            checks.append(
                {
                    "==": f"assert {quoted}.text == {literal(text)}",
                    "in": f"assert {literal(text)} in {quoted}.text",
                    "startswith": f"assert {quoted}.text.startswith({literal(text)})",
                }[how]
            )
        elif result.failed is False:
            checks.append(f"assert not {quoted}.is_error")
        else:
            checks.append(f"assert run.results({literal(tool)})")
        if not HANDOFFS.search(tool):
            checked.append(tool)
    return checks, tuple(checked)


def _check_output(seen: ObservedRun, again: ObservedRun) -> list[str]:
    if seen.output_kind == "none" or seen.output != again.output:
        return []
    if seen.output_kind == "fields":
        return [
            f"assert run.output.{name} {'is' if isinstance(value, bool) else '=='} {literal(value)}"
            for name, value in [*seen.output.items()][:2]
            if not _has_secret(str(value))
        ]
    text = literal(seen.output)
    if len(text) > 2 * LONGEST or seen.output == "" or _has_secret(text):
        return []
    return [f"assert run.output == {text}"]


def _has_secret(text: str) -> bool:
    """Return whether a text has a secret, which no part of goes into a file."""
    return hide_secrets(text) != text


def _prompt_part(seen: ObservedRun, scan: ProjectScan) -> str:
    """Return some words of the system prompt that the project wrote, or "" if there are none."""
    system = seen.systems[0] if seen.systems else ""
    texts = [module.text for module in scan.modules]
    texts += [path.read_text(errors="replace") for path in source_files(scan.root, *TEXT_FILES)]
    for line in filter(None, map(str.strip, system.splitlines())):
        part = line if len(line) <= LONGEST_PROMPT else line[:LONGEST_PROMPT].rpartition(" ")[0]
        if len(part) >= SHORTEST and any(part in text for text in texts):
            return part
    return ""


def _test_name(candidate: Candidate) -> str:
    name = candidate.target.partition(":")[2] or candidate.target
    if candidate.kind == "route":
        name = candidate.route[1]
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return identifier(name, "agent")


class _Style(msgspec.Struct):
    """How the tests of a project are written."""

    folder: Path
    asynchronous: bool = False
    markers: list[str] = []
    imports: list[str] = []


def _read_style(root: Path) -> _Style:
    """Read the folder and the style of the tests of a project: async or not, and their marker."""
    folder = next((root / n for n in ("tests", "test") if (root / n).is_dir()), root)
    style = _Style(folder)
    for path in sorted(folder.glob("**/test_*.py") if folder != root else folder.glob("test_*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "async def test_" in text:
            style.asynchronous = True
            if marker := re.search(r"@pytest\.mark\.(asyncio|anyio)", text):
                style.markers, style.imports = [marker[0]], ["import pytest\n"]
            break
        if "def test_" in text:
            break
    return style


def _group(imports: list[str]) -> list[str]:
    """Return `from … import …` lines, one for each module, sorted."""
    names: dict[str, list[str]] = {}
    for line in imports:
        if line.startswith("from "):
            module, _, name = line.removeprefix("from ").partition(" import ")
            names.setdefault(module, []).append(name)
    return [
        f"from {module} import {', '.join(sorted(found))}"
        for module, found in sorted(names.items())
    ]


def _split_imports(imports: list[str], candidate: Candidate) -> tuple[list[str], list[str]]:
    package = candidate.target.partition(":")[0].partition(".")[0]
    own = [line for line in imports if line.split()[1].partition(".")[0] == package]
    return [line for line in imports if line not in own], own


def _write_conftest(root: Path, candidate: Candidate, files: dict[Path, str]) -> list[str]:
    """Add a conftest.py with keys and the path; return these lines if there is one already."""
    in_src = (candidate.file or "").startswith("src/")
    keys = ", ".join(f'"{key}"' for key in KEYS)
    path = root / "conftest.py"
    if not path.exists():
        imports = "import sys\nfrom pathlib import Path\n" if in_src else ""
        files[path] = CONFTEST.format(
            imports=imports, keys=keys, path=f"\n{SRC_PATH}" if in_src else ""
        )
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    lines: list[str] = []
    if "API_KEY" not in text:
        lines += ["import os", "", f"for name in ({keys}):  # SDKs ask for a key"]
        lines += ['    os.environ.setdefault(name, "not-used-in-tests")', ""]
    return lines


def _yaml(value: Any) -> str:
    """Return a value as YAML on one line."""
    words = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w ]*[\w.]?", value):
        return f'"{value}"' if value.lower() in words else value
    return msgspec.json.encode(value).decode()
