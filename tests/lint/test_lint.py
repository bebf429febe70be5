"""`offbook lint` reports tests that prove nothing, and files that nothing uses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from offbook.errors import FormatError, UsageError
from offbook.lint import RULES, fix_paths, lint, lint_paths
from tests.lint.test_empty_tests import EMPTY

IMPORTS = "from offbook import call, say, session, when\n"
PLAYBOOK = "- when: Hi\n  do:\n    - say: Hello.\n"
MOCKS = '{"match": "*", "text": "a"}\n{"match": "*late*", "text": "b"}\n'
Files = dict[str, str]

# the files of a folder -> the findings: file, line, code
FOUND: dict[str, tuple[Files, list[tuple[str, int, str]]]] = {
    "a test without an assertion": (
        {"test_a.py": "def test_a():\n    print(1)\n\nasync def test_b():\n    pass\n"},
        [("test_a.py", 1, "OB101"), ("test_a.py", 4, "OB101")],
    ),
    "a method without an assertion": (
        {"test_a.py": "class TestA:\n    def test_a(self):\n        pass\n"},
        [("test_a.py", 2, "OB101")],
    ),
    "a method of a nested class": (
        {"test_a.py": "class TestA:\n  class TestB:\n    def test_a(self):\n      pass\n"},
        [("test_a.py", 3, "OB101")],
    ),
    "methods of classes of unittest": (
        {
            "test_a.py": "class ShopTest(unittest.TestCase):\n  def test_a(self):\n    pass\n"
            "class Shop(IsolatedAsyncioTestCase):\n  async def test_a(self):\n    pass\n"
            "class Till(Shop):\n  def test_a(self):\n    pass\n"
            "class Door(Shop):\n  def test_a(self):\n    self.assertTrue(x)\n"
        },
        [("test_a.py", line, "OB101") for line in (2, 5, 8)],
    ),
    "a test under a condition": (
        {"test_a.py": "if x:\n  def test_a():\n    pass\n"},
        [("test_a.py", 2, "OB101")],
    ),
    "methods of the same name": (
        {
            "test_a.py": "class TestA:\n  def test_a(self):\n    assert x\n"
            "class TestB:\n  def test_a(self):\n    pass\n"
            "class TestC:\n  def test_a(self):\n    assert x\n"
        },
        [("test_a.py", 5, "OB101")],
    ),
    "a private function with an assertion": (
        {"test_a.py": "def test_a():\n    _same(x)\ndef _same(x):\n    assert x\n"},
        [],
    ),
    "a method of another class": (
        {"test_a.py": "class Shop:\n    def test_a(self):\n        pass\n"},
        [],
    ),
    "a file with the other name of a test": (
        {"a_test.py": "def test_a():\n    pass\n"},
        [("a_test.py", 1, "OB101")],
    ),
    "a file that is no test": ({"a.py": "def test_a():\n    pass\n"}, []),
    "folders of others": (
        {
            f"{folder}/test_a.py": "def test_a():\n    pass\n"
            for folder in (".venv", "__pycache__", "a/node_modules", "site-packages/b", "mine")
        },
        [("test_a.py", 1, "OB101")],
    ),
    "tests with assertions": (
        {
            "test_a.py": "import pytest\n"
            "def test_a():\n    assert x\n"
            "def test_b():\n    with pytest.raises(ValueError):\n        int('x')\n"
            "def test_c():\n    helper()\n"
            "def helper():\n    assert_it()\n"
            "def test_d(offbook):\n    offbook.session().run('x')\n"
        },
        [],
    ),
    "a helper that calls itself": (
        {"test_a.py": "def test_a():\n    again()\ndef again():\n    again()\n"},
        [("test_a.py", 1, "OB101")],
    ),
    "a silenced test": (
        {"test_a.py": "def test_a():  # noqa: OB101\n    pass\ndef test_b():  # noqa\n    pass\n"},
        [],
    ),
    "a silenced test after a form feed": (
        {"test_a.py": "\f\nx = '\u2028'\n\ndef test_a():  # noqa: OB101\n    pass\n"},
        [],
    ),
    "a test silenced for another rule": (
        {"test_a.py": "def test_a():  # noqa: OB104\n    pass\n"},
        [("test_a.py", 1, "OB101")],
    ),
    "an assertion outside of tests": (
        {"app.py": "from offbook.testing import assert_eq as same\nsame(1, 1)\n"},
        [("app.py", 2, "OB102")],
    ),
    "an assertion in conftest": (
        {"conftest.py": "from offbook.testing import assert_eq\nassert_eq(1, 1)\n"},
        [],
    ),
    "require in a test": (
        {
            "test_a.py": "from offbook.testing import require\n"
            "def test_a():\n    require(1)\n    assert x\n"
        },
        [("test_a.py", 3, "OB103")],
    ),
    "require in the code": ({"app.py": "from offbook.testing import require\nrequire(1)\n"}, []),
    "another function of offbook.testing": (
        {"app.py": "from offbook.testing import make\nmake.it(1)\nmake(1)\n"},
        [],
    ),
    "a function of another module": (
        {"app.py": "from my.testing import assert_eq\nassert_eq(1, 1)\n"},
        [],
    ),
    "a dropped then": (
        {"test_a.py": f"{IMPORTS}def test_a():\n    call('x').then(print)\n    assert x\n"},
        [("test_a.py", 3, "OB104")],
    ),
    "a then in a variable that is not used": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n    a = call('x').then(print).then(print)\n"
            "    assert x\n"
        },
        [("test_a.py", 3, "OB104")],
    ),
    "a then in an attribute": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n    x.a = b = call('x').then(print)\n"
            "    assert x\n"
        },
        [],
    ),
    "another method of a call": (
        {"test_a.py": f"{IMPORTS}def test_a():\n    call('x').log().then(print)\n    assert x\n"},
        [],
    ),
    "a then in a script": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n    a = call('x').then(print)\n"
            "    when('y', [a, call('z').then(print)])\n    promise().then(print)\n    assert x\n"
        },
        [],
    ),
    "a mocked tool that is not called": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n"
            "    with session(mock_tools={'bash': 'ok', 'raed': 'ok'}) as r:\n"
            "        r.run(when('x', [call('bash'), say('y')]))\n"
        },
        [("test_a.py", 3, "OB105")],
    ),
    "a script from elsewhere": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n"
            "    with session(mock_tools={'bash': 'ok'}) as r:\n        r.run(SCRIPT)\n"
        },
        [],
    ),
    "one of two scripts from elsewhere": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n"
            "    with session(mock_tools={'bash': 'ok'}) as r:\n"
            "        r.run(when('x', [say('y')]), SCRIPT)\n        r.run(part(SCRIPT))\n"
            "    assert r\n"
        },
        [],
    ),
    "a name of a tool that is computed": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n"
            "    with session(mock_tools={'bash': 'ok'}) as r:\n"
            "        r.run(when('x', [call('read'), call(name), say('y')]))\n"
        },
        [],
    ),
    "mocks of a test without a run": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n"
            "    assert session(mock_tools={'bash': 'ok'}, other={'raed': 'ok'})\n"
        },
        [],
    ),
    "a mocked tool behind other options": (
        {
            "test_a.py": f"{IMPORTS}def test_a():\n"
            "    with session(cwd={'a': 'b'}, mock_tools={name: 'ok', 'raed': 'ok'}) as r:\n"
            "        r.run(when('x', [call('bash'), say('y')]))\n"
        },
        [("test_a.py", 3, "OB105")],
    ),
    "an unreachable mock line": (
        {"m.jsonl": MOCKS, "test_a.py": "NAME = 'm.jsonl'\n"},
        [("m.jsonl", 2, "OB201")],
    ),
    "a suspicious mock line": (
        {"m.jsonl": '{"match": "hi", "text": "a"}\n', "test_a.py": "NAME = 'm.jsonl'\n"},
        [("m.jsonl", 1, "OB202")],
    ),
    "a mock file without use": ({"m.jsonl": '{"text": "a"}\n'}, [("m.jsonl", 1, "OB203")]),
    "another kind of JSONL": ({"trace.jsonl": '{"ts": 1, "event": "a"}\n'}, []),
    "a playbook without use": ({"a.yaml": PLAYBOOK, "test_a.py": ""}, [("a.yaml", 1, "OB204")]),
    "a playbook with use": ({"a.yaml": PLAYBOOK, "test_a.py": "NAME = 'a.yaml'\n"}, []),
    "a playbook with a short name": ({"a.yml": PLAYBOOK}, [("a.yml", 1, "OB204")]),
    "a playbook by its stem": ({"a.yaml": PLAYBOOK, "test_a.py": "NAME = 'a'\n"}, []),
    "a playbook by its stem in double quotes": (
        {"a.yaml": PLAYBOOK, "test_a.py": 'NAME = "a"\n'},
        [],
    ),
    "a playbook that another file names": ({"a.yaml": PLAYBOOK, "b.yml": "script: a.yaml\n"}, []),
    "an empty mock file": ({"m.jsonl": ""}, []),
    "another kind of YAML": ({"a.yaml": "name: x\n"}, []),
}


def write(folder: Path, files: Files) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("files, found", FOUND.values(), ids=FOUND)
def test_a_folder_has_its_findings(tmp_path: Path, files: Files, found: list[tuple[str, int, str]]):
    write(tmp_path, files)
    findings = lint_paths([tmp_path]).findings
    assert [(Path(f.path).name, f.line, f.code) for f in findings] == found


def test_a_finding_in_a_data_file_is_at_the_first_column(tmp_path: Path):
    write(tmp_path, {"m.jsonl": '{"match": "hi", "text": "a"}\n', "shop.yaml": PLAYBOOK})
    findings = lint_paths([tmp_path]).findings
    assert [(f.code, f.column) for f in findings] == [("OB202", 1), ("OB203", 1), ("OB204", 1)]


def test_every_rule_is_found_by_a_case():
    found = {code for _, found in FOUND.values() for _, _, code in found}
    assert found | {code for _, codes in EMPTY.values() for code in codes} == set(RULES)


def test_fix_removes_the_unreachable_line_only(tmp_path: Path):
    write(tmp_path, {"m.jsonl": MOCKS, "test_a.py": "def test_a():\n    'm.jsonl'\n"})
    assert fix_paths([tmp_path]) == 1
    assert (tmp_path / "m.jsonl").read_text() == '{"match": "*", "text": "a"}\n'
    assert [f.code for f in lint_paths([tmp_path]).findings] == ["OB101"]


REQUIRE = "from offbook.testing import require\n\n\ndef test_a():\n"
TOOLS = (
    f"{IMPORTS}\n\ndef test_a():\n    with session(mock_tools={{tools}}) as r:\n"
    "        r.run(when('x', [call('bash'), say('y')]))\n"
)

SAME = ""  # no fix is certain

# a test before and after `--fix`
FIXED: dict[str, tuple[str, str]] = {
    "require": (f"{REQUIRE}    require(1 < 2)\n", f"{REQUIRE}    assert 1 < 2\n"),
    "require with a message": (
        f"{REQUIRE}    require(f('é'), 'no é')  # why\n",
        f"{REQUIRE}    assert f('é'), 'no é'  # why\n",
    ),
    "require of a value on its own line": (
        f"{REQUIRE}    require(\n        x\n    )\n",
        f"{REQUIRE}    assert x\n",
    ),
    "require over several lines": (f"{REQUIRE}    require(\n        1\n        < 2\n    )\n", SAME),
    "require with a keyword": (f"{REQUIRE}    require(1, message='a')\n", SAME),
    "require of three values": (f"{REQUIRE}    require(1, 2, 3)\n", SAME),
    "two requires in a line": (
        f"{REQUIRE}    require(1); require(2)\n",
        f"{REQUIRE}    assert 1; assert 2\n",
    ),
    "require in an expression": (f"{REQUIRE}    assert require(1) is None\n", SAME),
    "the first tool": (
        TOOLS.replace("{tools}", "{'raed': 'ok', 'bash': 'ok'}"),
        TOOLS.replace("{tools}", "{'bash': 'ok'}"),
    ),
    "the last tools": (
        TOOLS.replace("{tools}", "{'bash': 'ok', 'raed': f(1, 2), 'ls': 'ok',}"),
        TOOLS.replace("{tools}", "{'bash': 'ok',}"),
    ),
    "the only tool": (
        TOOLS.replace("{tools}", "{'raed': 'ok',}"),
        TOOLS.replace("{tools}", "{}"),
    ),
    "the only tool, over several lines": (
        TOOLS.replace("{tools}", "{\n'raed': 'ok',\n}"),
        TOOLS.replace("{tools}", "{}"),
    ),
    "a comment in between": (
        TOOLS.replace("{tools}", "{\n'bash': 'ok',  # why\n'raed': 'ok'}"),
        SAME,
    ),
    "a value in parentheses": (TOOLS.replace("{tools}", "{'bash': ('ok'), 'raed': 'ok'}"), SAME),
    "an unpacked dict": (TOOLS.replace("{tools}", "{**tools, 'raed': 'ok'}"), SAME),
}


@pytest.mark.parametrize("before, after", FIXED.values(), ids=FIXED)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_fix_changes_a_test_only_where_it_is_certain(
    tmp_path: Path, before: str, after: str, newline: str
):
    file = tmp_path / "test_a.py"
    file.write_text(before, newline=newline)
    fixed = fix_paths([tmp_path])
    assert file.read_bytes().decode() == (after or before).replace("\n", newline)
    assert bool(fixed) is (after != SAME)


def test_nothing_to_read_is_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no Python, mock or playbook file found"):
        lint_paths([tmp_path])
    with pytest.raises(UsageError, match="no such file"):
        lint_paths([tmp_path / "none"])


def test_invalid_python_is_an_error_with_its_line(tmp_path: Path):
    write(tmp_path, {"test_a.py": "\ndef (:\n"})
    with pytest.raises(FormatError, match=r"test_a\.py:2: invalid Python"):
        lint_paths([tmp_path])


def test_the_command_reports_as_ruff_does(tmp_path: Path):
    write(tmp_path, {"test_a.py": "def test_a():\n    pass\n"})
    result = CliRunner().invoke(lint, [str(tmp_path)], standalone_mode=False)
    assert result.output.splitlines() == [
        f"{tmp_path}/test_a.py:1:1: OB101 test_a has no assertion: it passes whatever happens",
        "Found 1 in 1 file.",
    ]
    assert result.return_value == 1


def test_the_command_fixes_and_prints_json(tmp_path: Path):
    write(tmp_path, {"m.jsonl": MOCKS, "test_a.py": "def test_a():\n    assert read('m.jsonl')\n"})
    result = CliRunner().invoke(lint, [str(tmp_path), "--fix", "--json"], standalone_mode=False)
    assert json.loads(result.output) == {"findings": [], "files": 2, "fixed": 1}
    assert result.return_value == 0


def test_the_command_counts_what_it_fixed_and_says_that_nothing_is_left(tmp_path: Path):
    write(tmp_path, {"m.jsonl": MOCKS, "test_a.py": "def test_a():\n    assert read('m.jsonl')\n"})
    result = CliRunner().invoke(lint, [str(tmp_path), "--fix"], standalone_mode=False)
    assert result.output.splitlines() == ["Fixed 1 finding.", "Nothing found in 2 files."]
    assert result.return_value == 0


def test_the_command_counts_what_it_can_fix(tmp_path: Path):
    write(tmp_path, {"m.jsonl": MOCKS, "test_a.py": "def test_a():\n    assert read('m.jsonl')\n"})
    result = CliRunner().invoke(lint, [str(tmp_path)], standalone_mode=False)
    assert result.output.splitlines()[-1] == "[*] 1 fixable with `--fix`."
    assert result.return_value == 1
