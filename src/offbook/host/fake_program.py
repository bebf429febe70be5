"""The program behind a fake on the PATH: it claims an answer, records its call, and answers.

    python -I -S fake_program.py STATE ARGUMENTS…

`fake_cli.py` writes `script.json` in the folder STATE. A call takes the lock, chooses its answer
and creates `calls/NUMBER-ANSWER`, so that calls in parallel never get the same one. It imports
nothing of Offbook: an agent waits for each start.
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
    from typing import Any

UNANSWERED = 1  # the exit code of a call without an answer
# The options of pi that are followed by a value; every other word of its own is the task.
PI_VALUES = (
    *("--api-key", "--append-system-prompt", "--export", "--extension", "-e", "--fork", "--mode"),
    *("--model", "--models", "--prompt-template", "--provider", "--session", "--session-dir"),
    *("--skill", "--system-prompt", "--theme", "--thinking", "--tools", "-t"),
)
PI_MODEL = "mock/test-model"


def main(state: str, args: list[str]) -> int:
    """Answer one call; return the exit code."""
    number, answer, script = claim(state, args)
    if answer is None and script["style"] == "pi":
        answer = {}  # without a script it repeats its task
    if answer is None:
        words = " ".join([script["program"], *args])
        sys.stderr.write(f"offbook: no answer for call {number}: {words}\n")
        return UNANSWERED
    if answer.get("delay"):
        time.sleep(answer["delay"])
    for name, text in answer.get("write_files", {}).items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    output = answer.get("output")
    events = answer.get("jsonl")
    if script["style"] == "pi":
        try:
            task, session_folder = parse_pi(args)
        except OSError as error:
            sys.stderr.write(f"Error: File not found: {error.filename}\n")
            return UNANSWERED
        message = pi_message(task if output is None else output)
        events = [{"type": "message_end", "message": message}] if events is None else events
        output = None
        if session_folder:
            write_session(session_folder, number, task, message)
    lines = [line if isinstance(line, str) else json.dumps(line) for line in events or []]
    sys.stdout.write((output or "") + "".join(f"{line}\n" for line in lines))
    sys.stderr.write(answer.get("stderr", ""))
    sys.stdout.flush()
    return answer.get("exit_code", 0)


def claim(state: str, args: list[str]) -> tuple[int, dict[str, Any] | None, dict[str, Any]]:
    """Choose the answer of this call and record the call; no other call runs this meanwhile."""
    # Read before the lock is taken: the end of the input may take long.
    text = sys.stdin.read() if os.path.exists(os.path.join(state, "reads-stdin")) else ""
    with open(os.path.join(state, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(os.path.join(state, "script.json"), encoding="utf-8") as file:
            script = json.load(file)
        calls = os.path.join(state, "calls")
        before = [name for name in os.listdir(calls) if not name.endswith(".new")]
        number = len(before) + 1
        used = {name.partition("-")[2] for name in before}
        chosen = choose(script, used, " ".join(args))
        answer: dict[str, Any] | None = None if chosen is None else script["answers"][chosen]
        record = {
            "number": number,
            "args": [os.fsencode(word).decode("utf-8", "replace") for word in args],
            "cwd": os.getcwd(),
            "stdin": text,
            "exit_code": UNANSWERED,
            "answered": answer is not None or script["style"] == "pi",
        }
        if record["answered"]:
            record["exit_code"] = 0 if answer is None else answer.get("exit_code", 0)
        name = os.path.join(calls, f"{number:06}-{'' if chosen is None else chosen}")
        with open(f"{name}.new", "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.rename(f"{name}.new", name)
    return number, answer, script


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
