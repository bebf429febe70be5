"""A network namespace is created, or the error says why not. Runs in one: tests/goldens."""

import ctypes
import sys
from types import SimpleNamespace

import pytest

from offbook.errors import UsageError
from offbook.goldens import leave_network


def test_other_system_is_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UsageError, match="no network namespaces on darwin"):
        leave_network()


def test_missing_permission_is_reported(monkeypatch: pytest.MonkeyPatch):
    def unshare(_flags: int) -> int:
        ctypes.set_errno(1)
        return -1

    def load(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(unshare=unshare)

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(UsageError, match="cannot create a network namespace: Operation not perm"):
        leave_network()
