"""Fixtures of the workflow tests."""

from functools import partial

import pytest

from tests.surfaces.conftest import Offbook, offbook_command, workspaces

__all__ = ["offbook_command", "workspaces"]


@pytest.fixture
def workspace_command(offbook_command: Offbook) -> Offbook:
    """Runs `offbook workspace` with these arguments in this process."""
    return partial(offbook_command, "workspace")
