"""The program behind a fake on the PATH: it claims an answer, records its call, and answers.

    python -I -S fake_program.py STATE ARGUMENTS…

`fake_cli.py` writes `script.json` in the folder STATE. A call takes the lock, chooses its answer
and creates `calls/NUMBER-ANSWER`, so that calls in parallel never get the same one. Its end is
recorded there, too. It imports nothing of Offbook: an agent waits for each start.
"""

# ruff: noqa: PTH103, PTH104, PTH109, PTH110, PTH118, PTH120, PTH123, PTH208 - pathlib is slow to import
from __future__ import annotations

import fcntl
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

UNANSWERED = FAILED = 1  # the exit codes of a call without an answer, and of one that fails
NO_END = "it was killed, or is still running"
# The options of pi that are followed by a value; every other word is the task.
PI_VALUES = (
    *("--api-key", "--append-system-prompt", "--export", "--extension", "-e", "--fork", "--mode"),
    *("--model", "--models", "--prompt-template", "--provider", "--session", "--session-dir"),
    *("--skill", "--system-prompt", "--theme", "--thinking", "--tools", "-t"),
)
PI_MODEL = "mock/test-model"


def main(state: str, args: list[str]) -> int:
    """Answer one call; return the exit code."""
    record, answer, script = claim(state, args)
    if not record["answered"]:
        words = " ".join([script["program"], *args])
        sys.stderr.write(f"offbook: no answer for call {record['number']}: {words}\n")
        return UNANSWERED
    answer = answer or {}  # without a script, pi repeats its task
    try:
        output, errors, code = perform(answer, script["style"], args, record["number"])
        problem = ""
    except Exception as error:  # noqa: BLE001 - whatever it is, the test has to know
        problem = f"{type(error).__name__}: {error}"
        output, errors, code = "", f"offbook: the fake program failed: {problem}\n", FAILED
    # Before the output: a caller may kill the program as soon as it has read it.
    record_end(state, {**record, "exit_code": code, "error": problem})
    sys.stdout.write(output)
    sys.stderr.write(errors)
    sys.stdout.flush()
    return code


def perform(
    answer: dict[str, Any], style: str, args: list[str], number: int
) -> tuple[str, str, int]:
    """Do what an answer says; return what to print, on both streams, and the exit code."""
    if answer.get("delay"):
        time.sleep(answer["delay"])
    for name, text in answer.get("write_files", {}).items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    output = answer.get("output")
    events = answer.get("jsonl")
    if style == "pi":
        try:
            task, session_folder = parse_pi(args)
        except OSError as error:
            return "", f"Error: File not found: {error.filename}\n", FAILED
        message = pi_message(task if output is None else output)
        events = [{"type": "message_end", "message": message}] if events is None else events
        output = None
        if session_folder:
            write_session(session_folder, number, task, message)
    lines = [line if isinstance(line, str) else json.dumps(line) for line in events or []]
    printed = (output or "") + "".join(f"{line}\n" for line in lines)
    return printed, answer.get("stderr", ""), answer.get("exit_code", 0)


def claim(
    state: str, args: list[str]
) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """Choose the answer of this call and record the call; no other call runs this meanwhile."""
    # Read before the lock is taken: the end of the input may take long.
    text = ""
    if os.path.exists(os.path.join(state, "reads-stdin")):
        text = as_text(sys.stdin.buffer.read())
    with lock(state):
        with open(os.path.join(state, "script.json"), encoding="utf-8") as file:
            script = json.load(file)
        calls = os.path.join(state, "calls")
        before = [name for name in os.listdir(calls) if not name.endswith(".new")]
        number = len(before) + 1
        used = {name.partition("-")[2] for name in before}
        chosen = choose(script, used, " ".join(args))
        answer: dict[str, Any] | None = None if chosen is None else script["answers"][chosen]
        answered = answer is not None or script["style"] == "pi"
        record: dict[str, Any] = {
            "number": number,
            "args": [as_text(os.fsencode(word)) for word in args],
            "cwd": as_text(os.fsencode(os.getcwd())),
            "stdin": text,
            "exit_code": None if answered else UNANSWERED,
            "answered": answered,
            # A late program is there to be killed.
            "error": "" if not answered or (answer or {}).get("delay") else NO_END,
            "file": f"{number:06}-{'' if chosen is None else chosen}",
        }
        write_record(state, record)
    return record, answer, script


def lock(state: str) -> TextIO:
    """Return the open lock: until it is closed, no other call reads or writes the state."""
    file = open(os.path.join(state, "lock"), "w")  # noqa: SIM115 - the caller closes it
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def write_record(state: str, record: dict[str, Any]) -> None:
    """Write the record of a call at once."""
    path = os.path.join(state, "calls", record["file"])
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.rename(f"{path}.new", path)


def record_end(state: str, record: dict[str, Any]) -> None:
    """Record the end of a call, unless the test has forgotten the call or removed the program."""
    try:
        with lock(state):
            if os.path.exists(os.path.join(state, "calls", record["file"])):
                write_record(state, record)
    except FileNotFoundError:  # the folder is removed
        return


def as_text(data: bytes) -> str:
    """Return bytes as a text that JSON can have."""
    return data.decode("utf-8", "replace")


def choose(script: dict[str, Any], used: set[str], words: str) -> int | None:
    """Return the first unused answer whose `match` fits; with `repeat_last`, else the last one."""
    fitting = [
        index
        for index, answer in enumerate(script["answers"])
        if "match" not in answer or matches(words, answer["match"])
    ]
    unused = [index for index in fitting if str(index) not in used]
    if unused:
        return unused[0]
    return fitting[-1] if fitting and script["repeat_last"] else None


def matches(words: str, pattern: str) -> bool:
    """Return whether the arguments, joined by spaces, match a glob."""
    from fnmatch import fnmatchcase  # most scripts have no pattern

    return fnmatchcase(words, pattern)


def parse_pi(args: list[str]) -> tuple[str, str]:
    """Return the task of a command line of pi, with the text of its @files, and --session-dir."""
    task: list[str] = []
    session_folder = ""
    words = iter(args)
    for word in words:
        if word in PI_VALUES:
            value = next(words, "")
            session_folder = value if word == "--session-dir" else session_folder
        elif word.startswith("@"):
            with open(word[1:], encoding="utf-8") as file:
                task.append(file.read())
        elif not word.startswith("-"):
            task.append(word)
    return " ".join(task), session_folder


def pi_message(text: str) -> dict[str, Any]:
    """Return the assistant message that pi prints for this text."""
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
    usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "provider": "mock",
        "model": PI_MODEL,
        "usage": {**usage, "cost": cost},
        "stopReason": "stop",
    }


def write_session(folder: str, number: int, task: str, message: dict[str, Any]) -> None:
    """Write the session file of a call, as pi does for --session-dir."""
    os.makedirs(folder, exist_ok=True)
    question = {"role": "user", "content": [{"type": "text", "text": task}]}
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": f"mock-{number}"}]
    lines += [{"type": "message", "message": item} for item in (question, message)]
    path = os.path.join(folder, f"session-{os.getpid()}-{number}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
