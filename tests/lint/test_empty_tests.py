"""Tests that a person would call empty are found, and our own are not."""

import re
from pathlib import Path

import pytest

from offbook.lint import lint_paths

RUN = 'run = rehearsal.run(when("Hi", [call("look"), say("Hello.")]))'

# the body of a test -> the codes that are found in it
EMPTY = {
    "a true constant": ("assert True", ["OB106"]),
    "a text": ('assert "it works"', ["OB106"]),
    "a tuple": ('assert (x == 1, "message")', ["OB106"]),
    "a list": ("assert [x]", ["OB106"]),
    "a dict": ('assert {"x": x}', ["OB106"]),
    "a generator": ("assert (one for one in x)", ["OB106"]),
    "or true": ("assert x or True", ["OB106"]),
    "a list with more": ("assert [x, *y]", ["OB106"]),
    "a dict with more": ('assert {"x": x, **y}', ["OB106"]),
    "in a block of a block": ("for x in y:\n    if x:\n        assert True", ["OB106"]),
    "a value with itself": ('assert x.y["z"] == x.y["z"]', ["OB106"]),
    "a whole run": (f"{RUN}\nassert run", ["OB106"]),
    "a run that is not None": (f"{RUN}\nassert run is not None", ["OB106"]),
    "a run without a name": ('assert rehearsal.run(when("Hi", SCRIPT))', ["OB106"]),
    "a run with a type": ('run: Run = r.run(when("Hi", SCRIPT))\nassert run', ["OB106"]),
    "a run of a role": ('run = r.run(role("clerk", SCRIPT))\nassert run', ["OB106"]),
    "a run of several turns": ('run = r.run(when("Hi", SCRIPT), turn())\nassert run', ["OB106"]),
    "an awaited run": ('run = await r.run(when("Hi", SCRIPT))\nassert run is not None', ["OB106"]),
    "after return": ("return\nassert x", ["OB107"]),
    "after raise": ("raise ValueError\nassert x", ["OB107"]),
    "after continue": ("for x in y:\n    continue\n    assert x", ["OB107"]),
    "in a block after return": ("return\nif x:\n    assert y", ["OB107"]),
    "after return in else": ("if x:\n    y()\nelse:\n    return\n    assert y", ["OB107"]),
    "after raise in finally": (
        "try:\n    x()\nfinally:\n    raise ValueError\n    assert y",
        ["OB107"],
    ),
    "under if False": ("if False:\n    assert x", ["OB107"]),
    "over nothing": ("for x in []:\n    assert x", ["OB107"]),
    "in a function that is never called": ("def check():\n    assert x", ["OB107"]),
    "in an async one": ("async def check():\n    assert x\nprint(1)", ["OB107"]),
    "except: pass": ("try:\n    assert x\nexcept:\n    pass", ["OB108"]),
    "except AssertionError": ("try:\n    assert x\nexcept AssertionError:\n    pass", ["OB108"]),
    "except Exception": ('try:\n    assert x\nexcept Exception:\n    print("no")', ["OB108"]),
    "except several": ("try:\n    assert x\nexcept (OSError, Exception):\n    pass", ["OB108"]),
    "suppress": ("with suppress(AssertionError):\n    assert x", ["OB108"]),
    "suppress several": ("with suppress(OSError, AssertionError):\n    assert x", ["OB108"]),
    "a handler that runs something else": (
        "try:\n    assert x\nexcept Exception as error:\n    dry_run(y)",
        ["OB108"],
    ),
    "contextlib.suppress": ("with contextlib.suppress(Exception):\n    assert x", ["OB108"]),
    "a run in try": (f"try:\n    {RUN}\nexcept Exception:\n    pass", ["OB108"]),
    "the script with itself": (f'{RUN}\nassert run.scripted.text == "Hello."', ["OB109"]),
    "the calls of the script": (
        f"{RUN}\nassert run.scripted.calls[0].name == 'look'\nassert run.scripted.text",
        ["OB109"],
    ),
    "the script beside a name with a check in it": (
        f"{RUN}\ndry_run(x)\nassert run.scripted.text",
        ["OB109"],
    ),
    "a name with a check in it": ("dry_run(x)", ["OB101"]),
    "raises Exception": ("with pytest.raises(Exception):\n    work()", ["OB110"]),
    "raises BaseException": ("with block(), raises(BaseException):\n    work()", ["OB110"]),
    "a model that only talks": ('rehearsal.run(when("Hi", [say("Hello.")]))', ["OB111"]),
    "two turns of talk": (
        'session.run(when("Hi", [think("?"), say("Hello.")]), when("Bye", [say("Bye.")]))',
        ["OB111"],
    ),
    "talk and a name with a check in it": (
        'rehearsal.run(when("Hi", [say("Hello.")]))\ndry_run(x)',
        ["OB111"],
    ),
}

# what a person would not call empty
FULL = {
    "a condition": "assert x",
    "a condition with a message": 'assert x, "message"',
    "an empty list": "assert [] == x",
    "a list of unknown length": "assert [*x]",
    "a dict of unknown length": "assert {**x}",
    "an empty tuple": "assert ()",
    "and true": "assert x and True",
    "a chain": "assert x == x == y",
    "two calls": "assert next(x) == next(x)",
    "a NaN": "assert x != x",
    "a result of another run": "run = subprocess.run(words)\nassert run is not None",
    "a name that is not only a run": f"run = None\nif y:\n    {RUN}\nassert run is not None",
    "the output of a run": f"{RUN}\nassert run.output",
    "a run that is None": f"{RUN}\nassert run is None",
    "a run that is not another": f"{RUN}\nassert run != other",
    "a run that is not a text": f"{RUN}\nassert run != 'x'",
    "a part of a run": 'a, run = r.run(when("Hi", SCRIPT))\nassert run',
    "a run of no script": "run = r.run(when)\nassert run",
    "in a loop over a list": "for x in [1]:\n    assert y",
    "before return": "assert x\nreturn",
    "after a return in a block": "if x:\n    return\nassert y",
    "in a function that is passed on": "def check():\n    assert x\ncall_it(check)",
    "in a decorated function": "@api.tool('x')\ndef check():\n    assert x",
    "in a method": "class Agent:\n    def prompt(self):\n        assert x\nassert Agent()",
    "another exception": "try:\n    assert x\nexcept OSError:\n    pass",
    "a failure that is raised": "try:\n    assert x\nexcept AssertionError:\n    raise",
    "a failure that is read": "try:\n    assert x\nexcept AssertionError as e:\n    note(e)",
    "a failure that is noted": (
        "try:\n    assert x\nexcept AssertionError:\n    bad = True\nassert not bad"
    ),
    "a failure that fails": "try:\n    assert x\nexcept Exception:\n    pytest.fail('no')",
    "suppress of another": "with suppress(OSError):\n    assert x",
    "another block": "with open(AssertionError):\n    assert x",
    "a failure in a private check": "try:\n    assert x\nexcept Exception:\n    _assert_it()",
    "the script and the output": (
        f"{RUN}\nassert run.scripted.text == 'Hello.'\nassert run.output is None"
    ),
    "the script under raises": (
        f"{RUN}\nwith pytest.raises(KeyError):\n    x\nassert run.scripted.text"
    ),
    "raises with match": "with pytest.raises(Exception, match='no'):\n    work()",
    "raises that is read": "with pytest.raises(Exception) as e:\n    work()\nassert e",
    "raises that ruff may not report": (
        "with pytest.raises(Exception):  # noqa: B017 - why\n    work()"
    ),
    "raises that ruff may not report by another rule": (
        "with pytest.raises(Exception):  # noqa: PT011 - why\n    work()"
    ),
    "raises of a class": "with pytest.raises(ValueError):\n    work()",
    "raises of several": "with pytest.raises(Exception, work):\n    work()",
    "a run with a call": RUN,
    "a script from elsewhere": "rehearsal.run(SCRIPT)",
    "a script of a variable": 'rehearsal.run(when("Hi", SCRIPT))',
    "one more turn from elsewhere": 'rehearsal.run(when("Hi", [say("Hello.")]), TURN)',
    "talk with an option": 'rehearsal.run(when("Hi", [say("Hello.")]), lenient=["history"])',
    "talk with a condition": 'rehearsal.run(when("Hi", [say("Hello.")], other))',
    "talk in a role": 'rehearsal.run(role("clerk", [say("Hello.")]))',
    "talk with a private check": 'r.run(when("Hi", [say("Hello.")]))\n_assert_it()',
    "talk and another run": f'r.run(when("Hi", [say("Hello.")]))\n{RUN}',
    "talk with an assertion": 'run = r.run(when("Hi", [say("Hello.")]))\nassert run.output',
    "talk with .then": 'r.run(when("Hi", [call("x").then(check), say("Hello.")]))',
    "a check from a table": "CHECKS[x](y)",
    "a private check": "_assert_it(x)",
    "the script and a private check": f"{RUN}\n_assert_it(run)\nassert run.scripted.text",
}


def find_codes(folder: Path, body: str) -> list[str]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (folder / "test_a.py").write_text(f"async def test_a(rehearsal):\n{lines}\n")
    return [finding.code for finding in lint_paths([folder]).findings]


@pytest.mark.parametrize("body, codes", EMPTY.values(), ids=EMPTY)
def test_an_empty_test_is_found(tmp_path: Path, body: str, codes: list[str]):
    assert find_codes(tmp_path, body) == codes


@pytest.mark.parametrize("body", FULL.values(), ids=FULL)
def test_a_test_that_can_fail_is_not_found(tmp_path: Path, body: str):
    assert find_codes(tmp_path, body) == []


OURS = {"OB101", *(f"OB{number}" for number in range(106, 112))}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_our_own_tests_are_not_found(root: Path):
    files = [file for name in ("tests", "examples") for file in (root / name).rglob("test_*.py")]
    found = [str(finding) for finding in lint_paths(files).findings if finding.code in OURS]
    assert found == []


def test_our_own_examples_are_not_found(root: Path, tmp_path: Path):
    pages = {*(root / "docs").rglob("*.md"), root / "README.md"}
    for page in pages - {root / "docs/guides/lint.md"}:  # the page of the findings
        blocks = BLOCK.findall(page.read_text())
        for number, block in enumerate(blocks):
            (tmp_path / f"test_{page.stem}_{number}.py").write_text(block)
    found = [str(finding) for finding in lint_paths([tmp_path]).findings if finding.code in OURS]
    assert found == []
