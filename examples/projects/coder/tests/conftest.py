"""A copy of the repository for each test."""

import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1] / "repository"


@pytest.fixture
def repository(tmp_path):
    return shutil.copytree(REPOSITORY, tmp_path / "repository")
