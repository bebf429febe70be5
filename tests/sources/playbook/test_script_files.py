"""Playbooks in files."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from offbook.errors import OffbookError, PlaybookError
from offbook.people import person
from offbook.sources import read_script
from offbook.sources.playbook import Turn, call, fail, role, say, think, when

YAML = """
- when: Refund order 7
  do:
    - think: first the order
    - call: find_order
      with: {id: 7}
    - [{call: refund, with: {id: 7}}, {call: notify}]
    - fail: too busy
      status: 503
      retry_after: 0.5
    - say: Done.
- role: titles
  system: title generator
  tools: [a]
  do:
    - say: A refund
"""
SCRIPT = (
    when(
        "Refund order 7",
        [
            think("first the order"),
            call("find_order", {"id": 7}),
            [call("refund", {"id": 7}), call("notify")],
            fail("too busy", status=503, retry_after=0.5),
            say("Done."),
        ],
    ),
    role("titles", [say("A refund")], system="title generator", tools=["a"]),
)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(dedent(text))
    return path


def test_yaml_equals_python(tmp_path: Path):
    assert read_script(write(tmp_path, "shop.yaml", YAML)) == SCRIPT


def test_json_equals_python(tmp_path: Path):
    path = write(tmp_path, "shop.json", '[{"when": "hi", "do": [{"say": "hello"}]}]')
    assert read_script(path) == (when("hi", [say("hello")]),)


def test_a_python_file_may_import_its_neighbours(tmp_path: Path):
    write(tmp_path, "shop_texts.py", 'GREETING = "hello"')
    path = write(
        tmp_path,
        "shop.py",
        """
        from offbook import say, when
        from shop_texts import GREETING
        playbook = [when("hi", [say(GREETING)])]
        """,
    )
    [turn] = read_script(path)
    assert isinstance(turn, Turn)
    assert turn.actions == (say("hello"),)


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("absent.py", None, ["cannot be read"]),
        ("a.py", "playbook = 1", ["missing a list called playbook", "when("]),
        ("a.py", "x = 1", ["expected a playbook, got a program"]),
        ("a.py", "playbook = 1/0", ["a.py:1", "ZeroDivisionError"]),
        ("a.py", "playbook = []", ["empty"]),
        ("a.py", "playbook = [3]", ["not int"]),
        ("a.yaml", "- when: hi\n  do: []", ["no actions"]),
        ("a.yaml", "- when: hi\n  does: []", ["does", "did you mean 'do'"]),
        (
            "a.yaml",
            "- when: hi\n  do:\n  - {say: a, call: b}",
            ["a.yaml:3: ", "has call: and say:"],
        ),
        ("a.yaml", "- when: hi\n  do: [{say: a, unknown: true}]", ["does not go with unknown:"]),
        ("a.yaml", "- when: hi\n  do: [{call: b, stop: length}]", ["does not go with stop:"]),
        ("a.yaml", "- when: hi\n  do: [{say: a, stop: cutt}]", ["stop='cutt'", "'cut'"]),
        ("a.yaml", "- when: hi\n  role: x\n  do: [{say: a}]", ["neither a turn nor a role"]),
        ("a.yaml", "- role: x\n  do: [{say: a}]", ["no condition to match requests by"]),
        ("a.yaml", "", ["a playbook must be a list", "got an empty file", "- {when"]),
        (
            "a.yaml",
            "- when: hi\n  do:\n  -\n    - fail: x\n      status: 200",
            ["a.yaml:3: entry 1"],
        ),
        ("a.json", '[{"when": "a", "do": [{"fail": "x", "status": 2}]}]', ["a.json: entry 1"]),
        ("a.yaml", "- when: hi\n  do:\n  - {fail: x, retry_after: .inf}", ["a.yaml:3", "inf"]),
        ("a.yaml", "- when: hi\n  do: [{person: a, allow: false}]", ["no single answer"]),
        ("a.yaml", "when: hi\ndo: [{say: a}]", ["a playbook must be a list", "got a mapping"]),
        ("a.json", '{"when": "hi"}', ["a playbook must be a list", "got a mapping"]),
        ("a.json", "[{", ["invalid JSON"]),
    ],
)
def test_an_invalid_file_is_rejected_with_its_path_and_a_fix(
    tmp_path: Path, name: str, text: str | None, words: list[str]
):
    path = tmp_path / name if text is None else write(tmp_path, name, text)
    with pytest.raises(OffbookError) as caught:
        read_script(path)
    assert str(path) in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


NO_CONDITION = "which matches everything"
VACUOUS = {
    "result": "- when: a\n  do: [{call: find, result: ''}, {say: b}]",
    "blank result": "- when: a\n  do: [{call: find, result: ' '}, {say: b}]",
    "system": "- role: t\n  system: ''\n  do: [{say: b}]",
    "first": "- role: t\n  first: ''\n  do: [{say: b}]",
    "model": "- role: t\n  model: ''\n  do: [{say: b}]",
    "tools": "- role: t\n  tools: []\n  do: [{say: b}]",
    "one of two": "- role: t\n  system: titles\n  model: ''\n  do: [{say: b}]",
    "person": "- when: a\n  do: [{person: ' ', allow: true}, {say: b}]",
    "prompt": "- when: ' '\n  do: [{say: b}]",
}


@pytest.mark.parametrize("text", VACUOUS.values(), ids=VACUOUS)
def test_a_condition_that_everything_fulfils_is_rejected(tmp_path: Path, text: str):
    with pytest.raises(PlaybookError, match=NO_CONDITION):
        read_script(write(tmp_path, "a.yaml", text))


def test_a_role_with_an_empty_pattern_is_rejected():
    with pytest.raises(PlaybookError, match=NO_CONDITION):
        role("t", [say("b")], system=re.compile(""))


def test_a_person_may_answer_no(tmp_path: Path):
    path = write(tmp_path, "a.yaml", "- when: a\n  do: [{person: Sure?, answer: false}, {say: b}]")
    assert read_script(path) == (when("a", [person("Sure?", answer=False), say("b")]),)


def test_a_file_can_script_a_hallucinated_tool(tmp_path: Path):
    path = write(tmp_path, "a.yaml", "- when: hi\n  do: [{call: imagined, unknown: true}]")
    assert read_script(path) == (when("hi", [call("imagined", unknown=True)]),)


def test_a_file_can_script_everything_that_a_search_finds(tmp_path: Path):
    path = write(
        tmp_path,
        "a.yaml",
        """
        - when: Find a
          do:
            - call: imagined
              unknown: true
            - {call: find, with: {$raw: "{"}}
            - [{call: find, with: {name: a}}, {say: "", stop: cut}]
            - [{call: find}, {say: Let me, stop: length}]
            - fail: busy
              status: 429
              retry_after: 0.001
            - {say: No., stop: refusal}
        """,
    )
    script = when(
        "Find a",
        [
            call("imagined", unknown=True),
            call("find", {"$raw": "{"}),
            [call("find", {"name": "a"}), say("", stop="cut")],
            [call("find"), say("Let me", stop="length")],
            fail("busy", status=429, retry_after=0.001),
            say("No.", stop="refusal"),
        ],
    )
    assert read_script(path) == (script,)
