"""A wrong mock of the host or of a program is refused with a message that names the mistake."""

from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.host import HostProviders
from offbook.testing import fake_cli, with_host_mocks


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"error": 5}, "error must be a message or an exception, got int"),
        ({"params": [1]}, r"host mock\.params: expected a mapping or nothing, got a list"),
        ({"results": []}, r"host mock\.results: expected a list of length >= 1, got \[\]"),
        ({"times": 0}, r"host mock\.times: expected an integer >= 1, got 0"),
        ({"times": True}, r"host mock\.times: expected an integer or nothing, got true or false"),
    ],
)
def test_a_wrong_field_of_a_host_mock_is_named(fields: dict[str, Any], message: str):
    mock = {"capability": "fs", "operation": "read", **fields}
    with pytest.raises(UsageError, match=message), with_host_mocks([mock]):
        pass


def test_an_answer_of_a_fake_program_is_a_text_or_a_mapping():
    with pytest.raises(UsageError, match="invalid answer: expected a mapping, got an integer"):
        fake_cli("claude", [5])  # type: ignore[list-item]


def test_a_fake_program_has_a_folder_only_while_it_is_installed():
    with pytest.raises(UsageError, match="the fake 'claude' is not installed"):
        _ = fake_cli("claude").folder


@pytest.mark.parametrize("name", ["", "fs.read", 5])
def test_the_name_of_a_host_capability_has_no_dot(name: Any):
    with pytest.raises(UsageError, match="invalid name of a host capability"):
        HostProviders({}).register(name, object())
