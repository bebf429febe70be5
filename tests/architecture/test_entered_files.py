"""How many of our files a reader has to open to follow a run, as an upper bound.

A file is entered if one of its functions is executed. A file of which only the classes are
defined, because another module imports it, is not entered. A lower number is always welcome: lower
the bound with it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from offbook.surfaces import CAPABILITIES

COUNT_FILES = """
import atexit, os, sys, threading
root = os.path.join("src", "offbook") + os.sep
entered = set()
# Python 3.11 executes a comprehension of a table as a function; later versions do not.
tables = {"<module>", "<dictcomp>", "<listcomp>", "<setcomp>"}
CO_OPTIMIZED = 1  # the flag of functions, which the body of a class does not have

def enter(frame, event, argument):
    code = frame.f_code
    is_function = code.co_flags & CO_OPTIMIZED and code.co_name not in tables
    if event == "call" and is_function and root in code.co_filename:
        entered.add(code.co_filename.rpartition(root)[2])

@atexit.register
def write():
    sys.setprofile(None)
    with open("entered.txt", "w") as file:
        file.write("\\n".join(sorted(entered)))

threading.setprofile(enter)
sys.setprofile(enter)
"""
SESSION = (
    COUNT_FILES
    + """
from offbook import call, say, session, when
with session(mock_tools={"bash": "hi"}) as rehearsal:
    rehearsal.run(when("Greet me", [call("bash", {"command": "echo hi"}), say("Done.")]))
    assert rehearsal.events.tool_sequence() == ["bash"]
"""
)
SERVED = (
    COUNT_FILES
    + """
import json, urllib.request
from offbook import Playbook, Server, say, when
playbook = Playbook()
playbook.load(when("Greet me", [say("Done.")]))
body = {"model": "m", "messages": [{"role": "user", "content": "Greet me"}]}
with Server() as server:
    url = server.mount(playbook).url + "/v1/chat/completions"
    entered.clear()  # the request alone
    answer = json.load(urllib.request.urlopen(url, json.dumps(body).encode()))
    assert answer["choices"][0]["message"]["content"] == "Done."
"""
)
MISS = (
    COUNT_FILES
    + """
import json, urllib.error, urllib.request
from offbook import Cassette, Server
body = {"model": "m", "messages": [{"role": "user", "content": "Something else"}]}
with Server() as server:
    url = server.mount(Cassette("c.yaml")).url + "/v1/chat/completions"
    try:
        urllib.request.urlopen(url, json.dumps(body).encode())
    except urllib.error.HTTPError as error:
        assert b"Replay mismatch" in error.read()
"""
)
COMMAND = (
    COUNT_FILES
    + """
from offbook.__main__ import main
sys.argv = ["offbook", *sys.argv[1:]]
main()
"""
)
SCENARIO = """
name: flow
setup: {fixtures: {a.txt: hello}}
run:
  task: Go
  backend: mock
  mock_responses: [{hat: planner, output: "Done.\\nLOOP_COMPLETE"}]
assert: [{type: exit_code, expected: 0}]
"""
CASSETTE = """
format: offbook.cassette
version: 1
interactions:
  - id: 1
    request:
      prompt_hash: "sha256:0000000000000000000000000000000000000000000000000000000000000000"
      prompt_preview: Hello
      messages:
        - user: Hello
    response:
      output: Hi
"""
CLIENT = """
import json, os, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": "Something else"}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
try:
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()))
except urllib.error.HTTPError:
    pass
"""
KEY = "sk-proj-abcdefghijklmnop1234567890"


@pytest.mark.parametrize(
    "program, arguments, code, bound",
    [
        pytest.param(SESSION, [], 0, 23, id="session"),
        pytest.param(SERVED, [], 0, 17, id="served"),
        pytest.param(MISS, [], 0, 23, id="miss"),
        pytest.param(
            COMMAND, ["scenario", "run", "flow.yaml", "--junit", "j.xml"], 0, 35, id="scenario"
        ),
        pytest.param(
            COMMAND, ["replay", "c.yaml", "--", sys.executable, "client.py"], 1, 40, id="replay"
        ),
    ],
)
def test_a_run_enters_few_files(
    program: str,
    arguments: list[str],
    code: int,
    bound: int,
    tmp_path: Path,
    unwatched: dict[str, str],
):
    files = {"flow.yaml": SCENARIO, "c.yaml": CASSETTE, "client.py": CLIENT}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    outcome = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env={**unwatched, "OPENAI_API_KEY": KEY},  # as in the terminals of developers
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == code, outcome.stdout + outcome.stderr
    # The tables that the command line reads: its commands, and the declarations of capabilities.
    tables = {"surfaces/commands.py", *(f"{name}/__init__.py" for name in CAPABILITIES)}
    entered = set((tmp_path / "entered.txt").read_text().splitlines()) - tables
    assert entered
    assert len(entered) <= bound, "\n".join(sorted(entered))
