"""Goldens of requests leave out what differs in every run, by the list that cassettes use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook.checks import compare_traces, update_goldens
from offbook.determinism import use_variable
from offbook.errors import CheckFailed
from offbook.exchange import History, Request, user
from offbook.runs import RequestGoldens
from offbook.trace import VOLATILE_OPTIONS, Event

OPTIONS = dict.fromkeys(VOLATILE_OPTIONS, "of one run")


def check(
    root: Path, *prompts: str, update: bool = False, options: dict[str, Any] | None = None
) -> None:
    requests = [
        Request(History().plus(user(prompt)), parameters={**(options or {}), "temperature": 1})
        for prompt in prompts
    ]
    with use_variable(update_goldens, value=update):
        RequestGoldens(root, "test_shop").check(requests)


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.parametrize("option", sorted(VOLATILE_OPTIONS))
def test_an_option_that_differs_in_every_run_is_not_compared(tmp_path: Path, option: str):
    check(tmp_path, "Find order 7", update=True, options={option: "one"})
    assert "one" not in (tmp_path / "requests/test_shop.yaml").read_text()
    check(tmp_path, "Find order 7", options={option: "two"})


def test_another_option_is_compared(tmp_path: Path):
    check(tmp_path, "Find order 7", update=True, options={"seed": 1})
    with pytest.raises(CheckFailed, match=r"the requests of the agent differ[\s\S]*-.*seed: 1"):
        check(tmp_path, "Find order 7", options={"seed": 2})


def test_a_golden_of_an_older_version_is_compared_without_them(tmp_path: Path):
    check(tmp_path, "Find order 7", "Refund it", update=True)
    path = tmp_path / "requests/test_shop.yaml"
    old = path.read_text().replace("temperature: 1", "temperature: 1\n      stream: true", 1)
    assert old != path.read_text()
    path.write_text(old)
    check(tmp_path, "Find order 7", "Refund it", options=OPTIONS)
    assert path.read_text() == old
    with pytest.raises(CheckFailed):
        check(tmp_path, "Find order 7", "Refund them")


def test_a_golden_of_another_shape_differs(tmp_path: Path):
    check(tmp_path, "Find order 7", update=True)
    (tmp_path / "requests/test_shop.yaml").write_text("[]\n")
    with pytest.raises(CheckFailed, match="the requests of the agent differ"):
        check(tmp_path, "Find order 7")


def test_a_comparison_of_traces_leaves_out_the_same_options():
    def request(**options: Any) -> list[Event]:
        return [Event(0, "model.request", {"new": [], "parameters": options})]

    assert compare_traces(request(**OPTIONS), request(prompt_cache_key="another")).same
    assert not compare_traces(request(seed=1), request(seed=2)).same
