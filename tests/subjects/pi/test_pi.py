"""What only real pi has: loading, RPC, deadlines, subagents, versions and modes."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import (
    DeadlineExceeded,
    ExtensionError,
    OffbookWarning,
    ToolFailed,
    UsageError,
)
from offbook.runs import drive, session
from offbook.sources.playbook import call, role, say, when
from offbook.subjects import Subject
from offbook.subjects.clis.pi import Pi
from offbook.subjects.clis.pi.pi_process import check_version
from offbook.testing import SubjectConformance, create_test_session
from tests.clients import DEADLINE, PI, is_alive, needs
from tests.subjects.pi.worlds import EXTENSION, JSON, PI_WORLDS, World, whole

WriteExtension = Callable[[str], Path]
CHILD_PI = """
import { spawnSync } from "node:child_process";
export default function (pi) {
  pi.registerTool({
    name: "delegate", label: "delegate", description: "Ask a child.",
    parameters: { type: "object", properties: {} },
    async execute() {
      const words = ["--no-session", "-p", "Count the files"];
      const child = spawnSync("pi", words, { encoding: "utf8" });
      return { content: [{ type: "text", text: `child: ${child.stdout.trim()}` }], details: {} };
    },
  });
}
"""
UNKILLABLE = """
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
process.on("SIGTERM", () => {});
process.on("SIGINT", () => {});
export default function (pi) {
  pi.registerTool({
    name: "hang", label: "hang", description: "Never end.",
    parameters: { type: "object", properties: { file: { type: "string" } } },
    async execute(_id, { file }) {
      const child = spawn("sleep", ["300"], { detached: true, stdio: "ignore" });
      child.unref();
      writeFileSync(file, `${process.pid} ${child.pid}`);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); // as for (;;);
    },
  });
}
"""


@pytest.fixture
def write_extension(tmp_path: Path) -> WriteExtension:
    def write(text: str) -> Path:
        path = tmp_path / "extension.ts"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    from offbook.subjects.clis.pi.pi_process import close_hosts

    close_hosts()


@needs(PI)
class TestPi(SubjectConformance):
    """The rules for every subject. A warm process outlives its test on purpose."""

    cold = (
        "test_close_is_idempotent",
        "test_nothing_is_left_behind",
        "test_two_subjects_are_independent",
    )
    warm = False

    def setup_method(self, method: Callable[..., None]) -> None:
        self.warm = method.__name__ not in self.cold

    def subject(self) -> Subject:
        return Pi(warm=self.warm, deadline=DEADLINE)

    def call(self) -> tuple[str, JSON]:
        return "bash", {"command": "echo it works"}


# --- Loading


FAILS = "Failed to load extension"
THROWS = "export default function () { throw new Error('not today'); }"
NO_MODULE = "import 'no-such-module'; export default () => {};"
BROKEN = [
    pytest.param(THROWS, "not today", id="throws"),
    pytest.param(NO_MODULE, "no-such-module", id="no module", marks=whole),
    pytest.param("export default function ( {", FAILS, id="syntax", marks=whole),
    pytest.param("export const x = 1;", FAILS, id="no function", marks=whole),
]


@needs(PI)
@pytest.mark.parametrize("text, message", BROKEN)
def test_an_extension_that_cannot_be_loaded_fails_at_once(
    write_extension: WriteExtension, text: str, message: str
):
    path = write_extension(text)
    with pytest.raises(ExtensionError, match=message):
        drive(Pi(extensions=[path]))


def test_a_missing_extension_is_refused_before_pi_starts():
    with pytest.raises(UsageError, match=r"extension not found[\s\S]*extension.ts"):
        Pi(extensions=[EXTENSION.with_name("extensoin.ts")])


def test_a_python_extension_and_one_of_pi_are_refused_together():
    with pytest.raises(UsageError, match="cannot run in one session"):
        session(extensions=[EXTENSION, "guard.py"])


def prefix(params: JSON) -> str:
    return f"$ {params['command']}"


@needs(PI)
def test_a_session_with_a_typescript_extension_runs_in_pi():
    with create_test_session(
        extensions=[str(EXTENSION)],
        mock_tools={"bash": prefix},
        system_prompt="You are a plan.",
        skills=[{"name": "refunds", "description": "Refund an order.", "content": "Look first."}],
    ) as t:
        run = t.run(when("x", [call("create"), call("bash", {"command": "ls"}), say("ok")]))
        assert t.subject.name == "pi"
        assert run.results("bash")[0].text == "$ ls"
        assert run.requests[0].system.startswith("You are a plan.")
        assert "Refund an order." in run.requests[0].system


@needs(PI)
def test_k5_no_credentials_reach_pi_whose_temporary_folder_is_deep_and_not_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_extension: WriteExtension
):
    home, deep = tmp_path / "home", tmp_path / ("deep" * 30)  # too long for a Unix socket
    home.mkdir()
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    path = write_extension(
        "export default (pi) => pi.registerCommand('env', { description: '', handler: async"
        " (_a, ctx) => ctx.ui.notify(JSON.stringify(process.env)) });"
    )
    with drive(Pi(extensions=[path])) as t:
        assert t.run(when("/env", []), when("x", [say("ok")])).output == "ok"
        shown = t.events.ui_calls_for("notify")[0].args[0]
    assert "sk-of-the-user" not in shown
    assert str(home) not in shown.replace(os.environ["PATH"], "")
    assert list(home.iterdir()) == []


# --- The user interface


@pytest.mark.parametrize("world", PI_WORLDS)
def test_ui_methods_that_rpc_drops_are_recorded_and_answered(world: World):
    with world.open(mock_ui={"custom": lambda: "CHOSEN"}) as t:
        run = t.run(when("x", [call("hidden"), say("ok")]))
        assert run.results("hidden")[0].text == "custom: CHOSEN"
        methods = [c.method for c in t.events.ui if c.method != "notify"]
    assert methods == ["set_working_message", "set_footer", "custom"]


def test_an_unknown_ui_method_is_refused():
    with pytest.raises(UsageError, match="unknown method 'costum'"):
        Pi(mock_ui={"costum": 1})


# --- Prompts of the extension itself, and subagents


@pytest.mark.parametrize("world", PI_WORLDS)
def test_an_extension_that_prompts_pi_itself_can_be_scripted(world: World):
    with world.open() as t:
        run = t.run(
            when("/loop", []),
            when("Go by yourself", [call("create"), say("I went.")]),
            when("Thanks", [say("Any time.")]),
        )
        assert run.output == "Any time."
        prompts = [m.text for m in run.requests[-1].messages if m.role == "user"]
        assert prompts == ["Go by yourself", "Thanks"]


@needs(PI)
def test_a_child_pi_is_served_by_its_role(write_extension: WriteExtension):
    with drive(Pi(extensions=[write_extension(CHILD_PI)])) as t:
        run = t.run(
            role("child", [say("Three files.")], first="Count the files"),
            when("How many?", [call("delegate"), say("Three.")]),
        )
        assert run.results("delegate")[0].text == "child: Three files."
        assert run.output == "Three."


# --- Deadlines


@needs(PI)
@pytest.mark.parametrize("tool", ["sleep", pytest.param("spin", marks=whole)])
def test_a_tool_that_hangs_ends_with_the_deadline(tool: str, monkeypatch: pytest.MonkeyPatch):
    with drive(Pi(extensions=[EXTENSION]), auto_assert=False) as t:
        monkeypatch.setattr(t.subject, "deadline", 2.0)  # not for the start
        with pytest.raises(DeadlineExceeded, match="still running after 2 s"):
            t.run(when("x", [call(tool), say("ok")]))


@needs(PI)
def test_an_unkillable_extension_and_its_daemon_are_gone_at_the_deadline(
    write_extension: WriteExtension, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    noted = tmp_path / "pids"
    with drive(Pi(extensions=[write_extension(UNKILLABLE)]), auto_assert=False) as t:
        monkeypatch.setattr(t.subject, "deadline", 10.0)
        with pytest.raises(DeadlineExceeded):
            t.run(when("x", [call("hang", {"file": str(noted)}), say("ok")]))
        pids = [int(pid) for pid in noted.read_text().split()]
        assert [is_alive(pid) for pid in pids] == [False, False]


@needs(PI)
def test_a_dialog_whose_answer_hangs_ends_with_the_deadline(monkeypatch: pytest.MonkeyPatch):
    async def never() -> bool:
        return await asyncio.get_running_loop().create_future()

    pi = Pi(extensions=[EXTENSION], mock_ui={"confirm": never})
    with drive(pi, auto_assert=False) as t:
        monkeypatch.setattr(pi, "deadline", 2.0)
        with pytest.raises(DeadlineExceeded):
            t.run(when("x", [call("greet", {"name": "Bob"}), say("ok")]))


@whole
@needs(PI)
def test_an_extension_that_hangs_while_loading_ends_with_the_deadline(
    write_extension: WriteExtension,
):
    path = write_extension("export default async function () { for (;;); }")
    with pytest.raises(DeadlineExceeded):
        drive(Pi(extensions=[path], deadline=6))


# --- Errors of extensions


FAILING_HOOK = (
    "export default (pi) => pi.on('turn_start', () => { throw new Error('hook boom'); });"
)


@needs(PI)
@pytest.mark.parametrize("mode", ["rpc", pytest.param("json", marks=whole)])
def test_a_hook_that_throws_fails_the_run(write_extension: WriteExtension, mode: Any):
    path = write_extension(FAILING_HOOK)
    pi = Pi(extensions=[path], mode=mode)
    with drive(pi) as t, pytest.raises(ToolFailed, match=r"hook failed.*hook boom"):
        t.run(when("x", [say("ok")]))


@whole
@needs(PI)
def test_a_hook_that_throws_is_an_event_if_errors_are_not_propagated(
    write_extension: WriteExtension,
):
    with drive(Pi(extensions=[write_extension(FAILING_HOOK)], propagate_errors=False)) as t:
        t.run(when("x", [say("ok")]))
        assert "turn_start hook failed" in t.events.named("session.error")[0].data["error"]


# --- Modes


@needs(PI)
def test_in_print_mode_there_is_no_user_interface_and_the_session_goes_on():
    with drive(Pi(extensions=[EXTENSION], mode="print", mock_tools={"bash": "ok"})) as t:
        run = t.run(
            when("One", [call("bash", {"command": "rm x"}), say("1")]),
            when(
                "Two", [call("greet", {"name": "Bob"}), call("bash", {"command": "ls"}), say("2")]
            ),
        )
        assert run.output == "2"
        assert run.results("greet")[0].text == "No greeting"
        assert [c.input["command"] for c in t.events.blocked_calls()] == ["rm x"]
        assert len(run.requests[-1].messages) > 6


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mode": "rcp"}, "unknown mode 'rcp'"),
        ({"mode": "json", "warm": True}, "warm has no effect"),
        ({"mode": "print", "mock_ui": {"confirm": True}}, "declines every question"),
        ({"extensions": [7]}, "expected a path, got int"),
        ({"mock_tools": {"": 1}}, "mock_tools: expected a text of length >= 1"),
        ({"extensoins": []}, "did you mean 'extensions'"),
    ],
)
def test_a_wrong_option_is_refused(options: JSON, message: str):
    with pytest.raises(UsageError, match=message):
        Pi(**options)


@needs(PI)
def test_the_events_of_a_run_are_reproducible_up_to_their_order(tmp_path: Path):
    # The witness and the model reach us by two connections, which overtake each other.
    def record() -> list[tuple[str, str]]:
        pi = Pi(extensions=[EXTENSION], mock_tools={"bash": "ok"}, warm=True)
        with drive(pi, cwd=tmp_path) as t:
            t.run(when("x", [call("ask"), call("bash", {"command": "rm x"}), say("ok")]))
            skipped = {"_meta.run_start", "process.start", "model.request"}
            kept = [e for e in t.events.all if e.event not in skipped]
            return sorted((e.event, repr({**e.data, "ms": 0})) for e in kept)

    assert record() == record()


# --- Versions


def fake_pi(folder: Path, name: str, version: str, node: str = ">=20") -> str:
    program = folder / "dist" / "cli.js"
    program.parent.mkdir(parents=True)
    program.write_text("#!/usr/bin/env node\n")
    program.chmod(0o755)
    manifest = f'{{"name": "{name}", "version": "{version}", "engines": {{"node": "{node}"}}}}'
    (folder / "package.json").write_text(manifest)
    return str(program)


@pytest.mark.parametrize("version, side", [("0.54.0", "older"), ("0.99.1", "newer")])
async def test_a_version_outside_of_the_tested_ones_is_a_warning(
    tmp_path: Path, version: str, side: str
):
    program = fake_pi(tmp_path, "@earendil-works/pi-coding-agent", version)
    message = f"pi {version} is {side} than the tested versions, 0.64 to 0.87"
    with pytest.warns(OffbookWarning, match=message):
        assert await check_version(program, os.environ) == version


@pytest.mark.parametrize("version", ["0.64.0", "0.75.5", "0.84.4", "0.87.1"])
async def test_a_version_between_the_oldest_and_the_newest_tested_one_is_no_warning(
    tmp_path: Path, version: str
):
    program = fake_pi(tmp_path, "@earendil-works/pi-coding-agent", version)
    assert await check_version(program, os.environ) == version


def test_a_node_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text("#!/bin/sh\necho v20.1.0\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", f"{node.parent}:{os.environ['PATH']}")
    program = fake_pi(tmp_path / "pi", "@earendil-works/pi-coding-agent", "0.87.1", ">=22.19.0")
    with pytest.raises(UsageError, match=r"pi 0.87.1 needs Node >=22.19.0, found v20.1.0"):
        drive(Pi(program=program))


@pytest.mark.parametrize("world", PI_WORLDS)
def test_the_version_is_detected(world: World):
    with world.open() as t:
        t.run(when("x", [say("ok")]))
        assert isinstance(t.subject, Pi)
        manifest = Path(t.subject.program).resolve().parents[1] / "package.json"
        assert t.subject.version == json.loads(manifest.read_text())["version"]


# --- Warm mode


@needs(PI)
def test_a_warm_process_serves_each_test_with_a_new_session_in_its_folder():
    def run_once() -> tuple[str, int]:
        with drive(Pi(extensions=[EXTENSION], warm=True)) as t:
            run = t.run(
                when("x", [call("create"), call("write", {"path": "a", "content": ""}), say("ok")])
            )
            assert (t.cwd / "a").exists()
            assert len(run.requests[0].messages) == 1
            assert isinstance(t.subject, Pi)
            return run.results("create")[0].text, id(t.subject.process)

    assert run_once() == run_once()
