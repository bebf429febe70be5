"""A judge is built from its name: a file, a provider, a client or a command."""

import os
import sys
from pathlib import Path

import pytest

from offbook.errors import FormatError, ModelError, ScriptMismatch, UsageError
from offbook.runs import JudgeConfig
from offbook.sources import Live
from tests.subjects.clis.test_command import AGENT

PLAYBOOK = """- when: Is it good?
  do:
    - say: '{"reasoning": "so", "score": 4}'
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "strict.yaml").write_text(PLAYBOOK)
    return tmp_path


async def answer(config: JudgeConfig, folder: Path) -> str:
    judge = config.build(folder)
    return (await judge.source.reply(judge.build_request("Is it good?"))).text


async def test_a_file_is_the_judge(folder: Path):
    assert '"score": 4' in await answer(JudgeConfig(str(folder / "strict.yaml")), Path("gone"))


async def test_a_name_without_a_suffix_is_a_file_of_the_folder(folder: Path):
    assert '"score": 4' in await answer(JudgeConfig("strict"), folder)


def test_a_file_without_a_suffix_is_read_as_it_is(folder: Path):
    (folder / "plain").write_text(PLAYBOOK)
    with pytest.raises(FormatError, match="plain: file without a suffix"):
        JudgeConfig(str(folder / "plain")).build(folder)


def test_an_unknown_name_suggests_the_nearest_file_and_provider(folder: Path):
    with pytest.raises(UsageError, match="unknown judge 'strct'\ndid you mean 'strict'"):
        JudgeConfig("strct").build(folder)
    with pytest.raises(UsageError, match="did you mean 'anthropic'"):
        JudgeConfig("antropic").build(folder)


def test_a_missing_file_is_reported_by_its_name(folder: Path):
    with pytest.raises(FormatError, match=r"gone\.yaml: cannot be read"):
        JudgeConfig("gone.yaml").build(folder)


def test_the_options_of_the_judge_are_those_of_its_config(folder: Path):
    config = JudgeConfig("strict", model="m", instructions="Be strict.", reasoned=False)
    judge = config.build(folder)
    assert (judge.model, judge.dialect, judge.instructions) == ("m", "", "Be strict.")
    assert judge.reasoned is False
    plain = JudgeConfig("strict").build(folder)
    assert (plain.model, plain.instructions, plain.reasoned) == ("", "", True)


def test_a_provider_is_asked_in_its_own_dialect(folder: Path):
    judge = JudgeConfig("anthropic", model="m", env={"ANTHROPIC_API_KEY": "k"}).build(folder)
    assert isinstance(judge.source, Live)
    assert judge.dialect == "anthropic"


@pytest.mark.parametrize(
    "config, message",
    [
        (JudgeConfig(), "evaluate needs a judge, a judge_backend or a judge_command"),
        (JudgeConfig("anthropic", model="m"), "the judge 'anthropic' is a real model"),
        (JudgeConfig("anthropic", env={"K": "v"}), "missing model name of the judge"),
        (JudgeConfig(backend="claud"), "unknown judge_backend 'claud'"),
        (JudgeConfig(backend="command"), "judge_command requires the judge_backend 'command'"),
        (
            JudgeConfig(backend="claude", command=["true"]),
            "judge_command requires the judge_backend 'command'",
        ),
        (JudgeConfig("gone", command=["true"]), "unknown judge 'gone'"),
    ],
)
def test_an_incomplete_judge_is_refused(config: JudgeConfig, message: str, tmp_path: Path):
    with pytest.raises(UsageError, match=message):
        config.build(tmp_path)


async def test_a_command_reads_the_question_and_writes_the_answer(tmp_path: Path):
    program = "import sys; print(sys.stdin.read().split()[-1], 'yes')"
    config = JudgeConfig(command=[sys.executable, "-c", program])
    assert await answer(config, tmp_path) == "good? yes"


@pytest.mark.parametrize(
    "program, shown",
    [
        ("import sys; print('out'); sys.exit('no till')", "exit code 1: no till \\("),
        ("print('x' * 300); raise SystemExit(3)", f"exit code 3: {'x' * 200} \\("),
    ],
)
async def test_a_command_that_fails_is_an_error_with_the_end_of_its_output(
    tmp_path: Path, program: str, shown: str
):
    with pytest.raises(ModelError, match=shown):
        await answer(JudgeConfig(command=[sys.executable, "-c", program]), tmp_path)


CLIENTS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "kiro": "Kiro",
    "pi": "pi",
}


@pytest.mark.parametrize("name, title", CLIENTS.items())
async def test_a_client_that_is_not_installed_is_named(
    name: str, title: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    with pytest.raises(UsageError, match=f"backend_not_found: {title} is not installed"):
        await answer(JudgeConfig(backend=name, env={"K": "v"}), folder)


def put_on_path(program: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "bin" / program
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")


async def test_pi_prints_its_answer_as_json_and_ends(folder: Path, monkeypatch: pytest.MonkeyPatch):
    shim = f'if [ "$1" = --version ]; then echo 0.74.2; else echo "$@" > {folder}/words; fi'
    put_on_path("pi", shim, folder, monkeypatch)
    assert await answer(JudgeConfig("strict", backend="pi"), folder) == ""
    assert " --mode json --print You judge the work " in (folder / "words").read_text()


async def test_a_client_whose_model_is_hosted_takes_no_script(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    put_on_path("kiro-cli", "echo yes", folder, monkeypatch)
    with pytest.raises(UsageError, match="cannot use a playbook: its model is a hosted service"):
        await answer(JudgeConfig("strict", backend="kiro"), folder)
    with pytest.raises(UsageError, match="would call a real model"):
        await answer(JudgeConfig(backend="kiro"), folder)
    assert await answer(JudgeConfig(backend="kiro", env={"K": "v"}), folder) == "yes"


async def test_the_answer_of_a_command_may_be_a_line_of_json(folder: Path):
    judged = '{"reasoning": "so", "score": 4}'
    config = JudgeConfig(command=[sys.executable, "-c", f"print({judged!r})"])
    assert await answer(config, folder) == judged


SHOWS = "import os; print(*(os.environ.get(name) for name in ('OPENAI_API_KEY', 'SHOP')))"
URL = "import os; print('OPENAI_BASE_URL' in os.environ)"


async def test_a_command_with_a_script_does_not_get_the_real_key(folder: Path):
    env = {"OPENAI_API_KEY": "sk-real", "SHOP": "lamps"}
    plain = JudgeConfig(command=[sys.executable, "-c", SHOWS], env=env)
    assert await answer(plain, folder) == "sk-real lamps"
    scripted = JudgeConfig("strict", command=[sys.executable, "-c", SHOWS], env=env)
    key, shop = (await answer(scripted, folder)).split()
    assert key != "sk-real"
    assert shop == "lamps"


async def test_a_command_without_a_script_has_no_server(folder: Path):
    assert await answer(JudgeConfig(command=[sys.executable, "-c", URL]), folder) == "False"
    scripted = JudgeConfig("strict", command=[sys.executable, "-c", URL])
    assert await answer(scripted, folder) == "True"


async def test_an_error_of_the_script_of_a_command_is_raised(folder: Path):
    (folder / "agent.py").write_text(AGENT)
    (folder / "other.yaml").write_text(PLAYBOOK.replace("Is it good?", "Is it bad?"))
    command = [sys.executable, str(folder / "agent.py")]
    with pytest.raises(ScriptMismatch, match=r"Is it bad\?"):
        await answer(JudgeConfig("other", command=command), folder)


@pytest.mark.parametrize(
    "config, message",
    [
        (JudgeConfig(command=["x"], temperature=1), "the judge 'command' has no temperature"),
        (JudgeConfig(backend="codex", seed=1), "the judge 'codex' has no seed"),
        (
            JudgeConfig("anthropic", model="m", env={"K": "v"}, seed=1),
            "the judge 'anthropic' has no seed",
        ),
    ],
)
def test_a_parameter_that_the_judge_does_not_have_is_refused(
    config: JudgeConfig, message: str, tmp_path: Path
):
    with pytest.raises(UsageError, match=message):
        config.build(tmp_path)


def test_the_parameters_of_a_script_have_their_common_names(folder: Path):
    judge = JudgeConfig("strict", temperature=0, seed=7).build(folder)
    assert judge.build_request("Is it good?").parameters == {"temperature": 0, "seed": 7}
    assert JudgeConfig("strict", seed=7).build(folder).parameters == {"seed": 7}
