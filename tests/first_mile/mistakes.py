"""Mistakes of newcomers: the files, the command, and the words that its message must have.

Each message says what is wrong, where, and how to fix it. An empty word is a message that lacks
this part: those of pytest, click and Python that Offbook does not write.
"""

from typing import NamedTuple


class Mistake(NamedTuple):
    """A mistake: `what`, `where` and `fix` are parts of the output of the command."""

    command: str
    files: dict[str, str | bytes]
    what: str
    where: str
    fix: str


AGENT = """\
import json, os, sys, urllib.request

TOOLS = [{"type": "function", "function": {"name": "price", "parameters": {
    "type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}}}]
messages = [{"role": "user", "content": "Hello"}]
while True:
    body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    message = json.load(urllib.request.urlopen(url, body))["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "30 EUR"})
"""
ASK = """\
import json, os, urllib.request

def ask(prompt):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]})
    url = "https://api.openai.com/v1/chat/completions"
    reply = json.load(urllib.request.urlopen(url, body.encode()))
    return reply["choices"][0]["message"]["content"]
"""
SCRIPT = """\
- when: Hello
  do:
    - call: price
      with: {item: kettle}
    - say: Done.
"""
TRACE = '{"ts": 1, "event": "trace.opened", "data": {"format": "offbook-trace", "version": 1}}\n'
SCENARIO = "name: x\nrun: {task: Go}\nassert:\n  - {type: completed}\n"
RUN = "offbook run --script shop.yaml -- python agent.py"
RUN_PYTHON = "offbook run --script shop.py -- python agent.py"
PYTEST = "pytest test_shop.py"


def with_script(text: str | bytes) -> dict[str, str | bytes]:
    """Return the files of a run with another playbook."""
    return {"agent.py": AGENT, "shop.yaml": text}


def with_python(text: str) -> dict[str, str | bytes]:
    """Return the files of a run with a playbook in Python."""
    return {"agent.py": AGENT, "shop.py": text}


def with_test(body: str, agent: str = ASK) -> dict[str, str | bytes]:
    """Return an agent and a test with this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    imports = "from offbook import call, say, when\nfrom shop import ask\n"
    return {"shop.py": agent, "test_shop.py": f"{imports}\ndef test_ask(offbook):\n{lines}"}


HELLO = 'when("Hello", [say("Hi.")])'

MISTAKES = {
    # A playbook in YAML
    "when: is misspelt": Mistake(
        RUN,
        with_script(SCRIPT.replace("when", "wehn")),
        "unknown key 'wehn'",
        "shop.yaml:1",
        "'when'",
    ),
    "do: is misspelt": Mistake(
        RUN,
        with_script(SCRIPT.replace("do:", "does:")),
        "unknown key 'does'",
        "shop.yaml:2",
        "'do'",
    ),
    "call: is misspelt": Mistake(
        RUN,
        with_script(SCRIPT.replace("call", "cal")),
        "unknown key 'cal'",
        "shop.yaml:3",
        "'call'",
    ),
    "say: is misspelt": Mistake(
        RUN, with_script(SCRIPT.replace("say", "sya")), "unknown key 'sya'", "shop.yaml:5", "'say'"
    ),
    "with: has another name": Mistake(
        RUN,
        with_script(SCRIPT.replace("with", "args")),
        "unknown key 'args'",
        "shop.yaml:4",
        "'with'",
    ),
    "two actions under one dash": Mistake(
        RUN,
        with_script("- when: Hello\n  do:\n    - say: Hi.\n      call: price\n"),
        "entry 1: an action has call: and say:",
        "shop.yaml:3",
        "begin each action with its own dash",
    ),
    "with: belongs to another action": Mistake(
        RUN,
        with_script("- when: Hello\n  do:\n    - say: Hi.\n      with: {item: kettle}\n"),
        "entry 1: say: does not go with with:",
        "shop.yaml:3",
        "say: goes with stop:",
    ),
    "a turn without its dash": Mistake(
        RUN,
        with_script("when: Hello\ndo:\n  - say: Hi.\n"),
        "a playbook must be a list of turns and roles, got a mapping",
        "shop.yaml",
        "begin each turn with a dash",
    ),
    "do: is a text": Mistake(
        RUN,
        with_script("- when: Hello\n  do: Hi.\n"),
        "expected a list, got a text",
        "shop.yaml:2",
        "lines that begin with -",
    ),
    "do: is missing": Mistake(
        RUN, with_script("- when: Hello\n"), "missing key 'do'", "shop.yaml:1", "add do"
    ),
    "a number without quotes": Mistake(
        RUN,
        with_script("- when: Hello\n  do:\n    - say: 42\n"),
        "got an integer",
        "shop.yaml:3",
        "put the value in quotes",
    ),
    "a colon without quotes": Mistake(
        RUN,
        with_script("- when: Hello\n  do:\n    - say: Note: hi\n"),
        "invalid YAML",
        "shop.yaml:3",
        'put a text with ": " in it in quotes',
    ),
    "tabs": Mistake(
        RUN,
        with_script("- when: Hello\n\tdo:\n\t\t- say: Hi.\n"),
        "found a tab",
        "shop.yaml:2",
        "spaces instead of tabs",
    ),
    "an empty playbook": Mistake(
        RUN, with_script(""), "got an empty file", "shop.yaml", '{when: "…", do: [{say: "…"}]}'
    ),
    "another encoding": Mistake(
        RUN,
        with_script(SCRIPT.replace("Done", "Café").encode("latin-1")),
        "not a UTF-8 text",
        "shop.yaml:5",
        "save the file in the encoding UTF-8",
    ),
    # A playbook in Python
    "an action that is a text": Mistake(
        RUN_PYTHON,
        with_python('from offbook import when\nplaybook = [when("Hello", ["Hi."])]\n'),
        "expected an action, got str",
        "shop.py: action 1 of when('Hello', …)",
        "actions are call(…), say(…)",
    ),
    "actions without brackets": Mistake(
        RUN_PYTHON,
        with_python('from offbook import say, when\nplaybook = [when("Hello", say("Hi."))]\n'),
        "takes a list of actions, not Say",
        "shop.py: when('Hello', …)",
        "put the actions into [ … ]",
    ),
    "a playbook that is not a list": Mistake(
        RUN_PYTHON,
        with_python('from offbook import say, when\nplaybook = when("Hello", [say("Hi.")])\n'),
        "missing a list called playbook",
        "shop.py",
        "write playbook = [when(",
    ),
    "a missing import": Mistake(
        RUN_PYTHON,
        with_python('from offbook import say\nplaybook = [when("Hello", [say("Hi.")])]\n'),
        "name 'when' is not defined",
        "shop.py:2",
        "add: from offbook import when",
    ),
    # Files
    "a missing file": Mistake(
        RUN,
        {"agent.py": AGENT, "shop.yml": SCRIPT},
        "No such file",
        "shop.yaml",
        "did you mean 'shop.yml'?",
    ),
    "a folder instead of a file": Mistake(
        "offbook run --script scripts -- python agent.py",
        {"agent.py": AGENT, "scripts/shop.yaml": SCRIPT},
        "Is a directory",
        "scripts:",
        "name a file in it: shop.yaml",
    ),
    "a program instead of a trace": Mistake(
        "offbook view agent.mjs",
        {"agent.mjs": "import x from 'y'\n"},
        "expected a trace, got a program",
        "agent.mjs:",
        "offbook run --script PLAYBOOK -- node agent.mjs",
    ),
    "a playbook instead of a cassette": Mistake(
        "offbook show shop.yaml",
        {"shop.yaml": SCRIPT},
        "expected a cassette, got a playbook",
        "shop.yaml:",
        "offbook run --script shop.yaml -- COMMAND",
    ),
    "a playbook is replayed": Mistake(
        "offbook replay shop.yaml -- python agent.py",
        with_script(SCRIPT),
        "expected a cassette, got a playbook",
        "shop.yaml:",
        "offbook run --script shop.yaml -- COMMAND",
    ),
    "a trace as a script": Mistake(
        "offbook run --script run.jsonl -- python agent.py",
        {"agent.py": AGENT, "run.jsonl": TRACE},
        "got a trace",
        "run.jsonl:",
        "offbook show run.jsonl",
    ),
    "the agent as a script": Mistake(
        "offbook run --script agent.py -- python agent.py",
        {"agent.py": AGENT},
        "expected a playbook, got a program",
        "agent.py:",
        "offbook run --script PLAYBOOK -- python agent.py",
    ),
    "a test as a script": Mistake(
        "offbook run --script test_shop.py -- python agent.py",
        {**with_test(f"offbook.drive(ask).run({HELLO})"), "agent.py": AGENT},
        "expected a playbook, got a test file",
        "test_shop.py:",
        "pytest test_shop.py",
    ),
    "a scenario as a script": Mistake(
        RUN,
        with_script(SCENARIO),
        "expected a playbook, got a scenario",
        "shop.yaml:",
        "offbook scenario run shop.yaml",
    ),
    "mocks instead of a trace": Mistake(
        "offbook report mocks.jsonl --format junit",
        {"mocks.jsonl": '{"text": "Hi."}\n'},
        "expected a trace, got a mock file",
        "mocks.jsonl:",
        "offbook run --script mocks.jsonl -- COMMAND",
    ),
    "a playbook as a scenario": Mistake(
        "offbook scenario run shop.yaml",
        {"shop.yaml": SCRIPT},
        "expected a scenario, got a playbook",
        "shop.yaml:",
        "offbook run --script shop.yaml",
    ),
    "a cassette that was not recorded": Mistake(
        "offbook replay shop.yaml -- python agent.py",
        {"agent.py": AGENT},
        "no such cassette",
        "shop.yaml:",
        "record it: offbook record shop.yaml -- COMMAND",
    ),
    "a scenario with a misspelt key": Mistake(
        "offbook scenario run shop.yaml",
        {"shop.yaml": SCENARIO.replace("task", "tsak")},
        "unknown key 'tsak'",
        "shop.yaml:2",
        "did you mean 'task'?",
    ),
    "an eval pack with a misspelt key": Mistake(
        "offbook eval run pack.toml",
        {"pack.toml": '[[cases]]\nid = "a"\npromt = "Hello"\n'},
        "unknown key 'promt'",
        "pack.toml:3",
        "did you mean 'prompt'",
    ),
    "a misspelt setting": Mistake(
        PYTEST,
        {
            **with_test(f"offbook.drive(ask).run({HELLO})"),
            "pyproject.toml": "[tool.offbook]\ncontract = 'x'\n",
        },
        "unknown key 'contract'",
        "pyproject.toml",
        "did you mean 'contracts'?",
    ),
    # The command line
    "an unknown command": Mistake(
        "offbook shwo x", {}, "unknown command 'shwo'", "offbook [OPTIONS]", "did you mean 'show'?"
    ),
    "an unknown option": Mistake(
        "offbook run --scrpt shop.yaml -- python agent.py",
        with_script(SCRIPT),
        "No such option '--scrpt'",
        "offbook run",
        "Did you mean '--script'?",
    ),
    "a wrong value of an option": Mistake(
        "offbook run --script shop.yaml --deadline soon -- python agent.py",
        with_script(SCRIPT),
        "'soon' is not a valid float",
        "'--deadline'",
        "",
    ),
    "no command": Mistake(
        "offbook run --script shop.yaml",
        with_script(SCRIPT),
        "missing command",
        "offbook run",
        "--script FILE -- COMMAND",
    ),
    "the separator -- is missing": Mistake(
        "offbook run --script shop.yaml python agent.py -v",
        with_script(SCRIPT),
        "No such option '-v'",
        "offbook run",
        "Write -- before the command",
    ),
    "a command that is not installed": Mistake(
        "offbook run --script shop.yaml -- pyhton3 agent.py",
        with_script(SCRIPT),
        "command not found",
        "'pyhton3'",
        "did you mean 'python3'",
    ),
    "a command that is not executable": Mistake(
        "offbook run --script shop.yaml -- ./agent.py",
        with_script(SCRIPT),
        "Permission denied",
        "'./agent.py'",
        "chmod +x ./agent.py",
    ),
    "a file to init": Mistake(
        "offbook init shop.py",
        {"shop.py": ASK},
        "expected a folder or MODULE:NAME",
        "'shop.py'",
        "offbook init shop:NAME",
    ),
    "a name that init does not find": Mistake(
        "offbook init shop:aks",
        {"shop.py": ASK},
        "shop has no 'aks'",
        "shop",
        "did you mean 'ask'?",
    ),
    # The agent and the script
    "an agent that makes no request": Mistake(
        RUN,
        {"agent.py": "print('hi')\n", "shop.yaml": SCRIPT},
        "no request arrived at the model",
        "shop.yaml: when: Hello",
        "fix: let the agent read its base URL from one of them",
    ),
    "an agent that ignores its base URL": Mistake(
        RUN,
        {
            "agent.py": AGENT.replace('os.environ["OPENAI_BASE_URL"]', '"http://api.x.org/v1"'),
            "shop.yaml": SCRIPT,
        },
        "no request arrived at the model",
        "tried: api.x.org:80",
        "fix: let the agent read its base URL from one of them",
    ),
    "a misspelt path of the API": Mistake(
        RUN,
        {"agent.py": AGENT.replace("/completions", "/completion"), "shop.yaml": SCRIPT},
        "unsupported",
        "POST /v1/chat/completion",
        "fix: check the URL in the agent",
    ),
    "a tool that the agent does not have": Mistake(
        RUN,
        with_script(SCRIPT.replace("price", "prize")),
        "the agent does not offer 'prize'",
        "shop.yaml: when: Hello",
        "did you mean 'price'?",
    ),
    "an argument that the tool does not have": Mistake(
        RUN,
        with_script(SCRIPT.replace("item", "itme")),
        "it has no 'itme'",
        "shop.yaml: when: Hello",
        "add invalid: true to the call",
    ),
    "a script without an answer": Mistake(
        RUN,
        with_script(SCRIPT.replace("    - say: Done.\n", "")),
        "playbook exhausted",
        "shop.yaml: when: Hello",
        "end the turn with - say: …",
    ),
    "a script that is too long": Mistake(
        RUN,
        with_script(SCRIPT + "- when: Bye\n  do:\n    - say: Bye.\n"),
        "playbook not fully consumed",
        "shop.yaml: when: Bye",
        "fix: remove the steps that are never reached",
    ),
    "another prompt": Mistake(
        RUN,
        with_script(SCRIPT.replace("Hello", "Goodbye")),
        "the prompt does not match the next turn",
        "shop.yaml: when: Goodbye",
        "- {role: side request, first: 'Hello', do: [{say: …}]}",
    ),
    # A test
    "a misspelt fixture": Mistake(
        PYTEST,
        {"test_shop.py": "def test_ask(ofbook):\n    pass\n"},
        "fixture 'ofbook' not found",
        "test_shop.py:1",
        "available fixtures: ",
    ),
    "arguments that are not a dict": Mistake(
        PYTEST,
        with_test('offbook.drive(ask).run(when("Hello", [call("price", "kettle")]))'),
        "takes a dict or a function, not str",
        "test_shop.py:5",
        """write call('price', {"name": value})""",
    ),
    "a list of turns": Mistake(
        PYTEST,
        with_test(f"offbook.drive(ask).run([{HELLO}])"),
        "expected turns and roles, got list",
        "test_shop.py:5",
        "write run(when(",
    ),
    "a text in place of a turn": Mistake(
        PYTEST,
        with_test('offbook.drive(ask).run("Hello")'),
        "expected turns and roles, got str",
        "test_shop.py:5",
        "write run(when(",
    ),
    "a name in place of the agent": Mistake(
        PYTEST,
        with_test(f'offbook.drive("shop:ask").run({HELLO})'),
        "cannot drive str",
        "test_shop.py:5",
        "pass an agent of a framework, a function of the prompt",
    ),
    "a misspelt option": Mistake(
        PYTEST,
        with_test(f"offbook.drive(ask, mock_tool={{}}).run({HELLO})"),
        "unknown option 'mock_tool' for ask",
        "test_shop.py:5",
        "did you mean 'mock_tools'",
    ),
    "a missing await": Mistake(
        PYTEST,
        with_test(
            "import asyncio\nasync def go():\n"
            f'    run = offbook.drive(ask).run({HELLO})\n    assert run.output == "Hi."\n'
            "asyncio.run(go())"
        ),
        "this run has not finished",
        "test_shop.py:8",
        "write `run = await ….run(…)`",
    ),
    "an agent that is never run": Mistake(
        PYTEST,
        with_test("offbook.drive(ask)"),
        "nothing was tested: ask was opened and never run",
        "test_shop.py::test_ask",
        "call run(when(…))",
    ),
    "a misspelt tool in an assertion": Mistake(
        PYTEST,
        with_test(
            'script = when("Hello", [call("bash", {"command": "echo hi"}), say("Hi.")])\n'
            'offbook.session().run(script).results("bahs")[0]'
        ),
        "'bahs' has 0 results",
        "test_shop.py:6",
        "did you mean 'bash'?",
    ),
    "a misspelt limit": Mistake(
        PYTEST,
        {
            "test_shop.py": "import pytest\n\n@pytest.mark.offbook_budget(tokns=5)\n"
            "def test_ask(offbook):\n    pass\n"
        },
        "unknown key 'tokns'",
        "test_shop.py::test_ask: offbook_budget",
        "did you mean 'tokens'?",
    ),
    "a golden that was not written": Mistake(
        PYTEST,
        with_test(f"offbook.check_requests(offbook.drive(ask).run({HELLO}))"),
        "this test has no golden of its requests yet",
        "test_shop-test_ask.yaml",
        "pytest --offbook-update test_shop.py::test_ask",
    ),
    "a cassette of a test that was not recorded": Mistake(
        PYTEST,
        with_test('offbook.drive(ask, source=offbook.cassette()).run("Hello")'),
        "this test has no cassette yet",
        "test_shop-test_ask.yaml",
        "pytest --offbook-record test_shop.py::test_ask",
    ),
    "an unknown marker": Mistake(
        "pytest --strict-markers test_shop.py",
        {"test_shop.py": "import pytest\n\n@pytest.mark.ofbook\ndef test_ask():\n    pass\n"},
        "'ofbook' not found in `markers`",
        "test_shop.py",
        "",
    ),
    "a test without an assertion": Mistake(
        "offbook lint .",
        with_test(f"offbook.drive(ask).run({HELLO})"),
        "checks nothing but that the agent asks",
        "test_shop.py",
        "",
    ),
    "a misspelt name of the module": Mistake(
        "python shop.py",
        {"shop.py": "import offbook\noffbook.sesion()\n"},
        "has no attribute 'sesion'",
        "line 2",
        "Did you mean: 'session'?",
    ),
}
