"""The benchmark tasks of Ralph as eval cases: a command does each, its own command verifies it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.evals import PackBuilder, RunOptions, run_pack

pytestmark = pytest.mark.external

HELLO = "open('hello.py', 'w').write('print(\"Hello, World!\")')"
FIZZBUZZ = (
    "open('fizzbuzz.py', 'w').write('def fizzbuzz(n):\\n"
    '    return "Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0) or str(n)\\n\')'
)
# A test of the task whose own file is not part of the data.
TEST = "from fizzbuzz import fizzbuzz\ndef test_it(): assert fizzbuzz(15) == 'FizzBuzz'\n"
SOLUTIONS = {"hello-world": HELLO, "fizzbuzz-tdd": FIZZBUZZ}


def make_pack(data: Path, folder: Path, solutions: dict[str, str]) -> Path:
    builder = PackBuilder("ralph")
    for task in read_tasks(data):
        workspace = folder / task["name"]
        workspace.mkdir()
        for name in task.get("setup", {}).get("files", ()):
            (workspace / Path(name).name).write_text(TEST)
        (workspace / ".keep").touch()
        program = solutions.get(task["name"], "pass")
        # The interpreter of the tests; its pytest without the settings of this project.
        bin_folder = Path(sys.executable).parent
        builder.case(
            task["name"],
            kind="live-verify",
            task=task["description"],
            workspace=task["name"],
            executor={"argv": [sys.executable, "-c", program], "timeout_seconds": 60.0},
            verify_command={
                "argv": ["sh", "-c", f"PATH={bin_folder}:$PATH; {task['verification']['command']}"],
                "timeout_seconds": float(task["timeout_seconds"]),
            },
        )
    return builder.write(folder / "ralph.eval.toml")


def read_tasks(data: Path) -> list[dict[str, Any]]:
    return json.loads((data / "ralph/bench/tasks.json").read_text())["tasks"]


@pytest.mark.parametrize("solved", [True, False])
def test_a_task_passes_if_its_own_command_verifies_it(
    shared_data: Path, tmp_path: Path, *, solved: bool
):
    pack = make_pack(shared_data, tmp_path, SOLUTIONS if solved else {})
    run = run_pack([pack], RunOptions(output=str(tmp_path / "out")))
    assert [case.id for case in run.cases] == [task["name"] for task in read_tasks(shared_data)]
    assert [not case.failures for case in run.cases] == [solved] * len(run.cases)
