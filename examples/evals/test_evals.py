"""The example packs pass, and each of them can fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pydantic_ai.models.openai  # noqa: F401 - once for all workers: they are forked
import pytest

from offbook.evals import RunOptions, run_pack

HERE = Path(__file__).parent
PACKS = sorted(path.name for path in HERE.glob("*.eval.toml"))
# A change of a pack that has to fail.
BROKEN = {
    "cassette.eval.toml": ('prompt = "Refund order 7"', 'prompt = "Refund order 8"'),
    "claude_code.eval.toml": ('["Bash", "Write"]', '["Bash", "Edit"]'),
    "playbook.eval.toml": (
        'first = "find_order", then = "refund"',
        'first = "refund", then = "find_order"',
    ),
}


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_passes(name, tmp_path):
    run = run_pack([HERE / name], RunOptions(output=str(tmp_path)))
    assert [case.failures for case in run.cases] == [()]
    assert run.summary.passed_gate


@pytest.mark.parametrize("name", PACKS)
def test_a_broken_pack_fails(name, tmp_path):
    for file in HERE.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = tmp_path / file.relative_to(HERE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    pack = tmp_path / name
    before, after = BROKEN[name]
    assert before in pack.read_text()
    pack.write_text(pack.read_text().replace(before, after))
    run = run_pack([pack], RunOptions(output=str(tmp_path / "out")))
    assert not run.summary.passed_gate


def test_the_stored_run_of_claude_code_can_be_made_again(tmp_path):
    places = [Path(sys.executable).parent, HERE.parents[1] / ".clients" / "node_modules" / ".bin"]
    path = os.pathsep.join([*map(str, places), os.environ["PATH"]])
    if shutil.which("claude", path=path) is None:
        pytest.skip("Claude Code is not installed")
    for file in (HERE / "claude_code.eval.toml", *(HERE / "runs").iterdir()):
        copy = tmp_path / file.relative_to(HERE)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(file, copy)
    stored = tmp_path / "runs" / "fix_typo.jsonl"
    stored.unlink()
    command = ["sh", str(tmp_path / "runs" / "record.sh"), str(stored)]
    env = {**os.environ, "PATH": path}
    subprocess.run(command, env=env, check=True, timeout=200)  # noqa: S603 - the script above
    run = run_pack([tmp_path / "claude_code.eval.toml"], RunOptions(output=str(tmp_path / "out")))
    assert run.summary.passed_gate
