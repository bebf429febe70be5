"""What every test may ask for."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# how long an example takes is the machine's matter, and no test asserts time
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("unhurried"), derandomize=True)
settings.register_profile("quick", settings.get_profile("unhurried"), max_examples=10)
settings.register_profile("thorough", settings.get_profile("unhurried"), max_examples=3000)
settings.load_profile("unhurried")

# started in the background, a shell lets its child ignore Ctrl-C, and the child's children as well
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"
if (ROOT / ".clients").is_dir():  # where ./dev clients puts what it installs
    os.environ.setdefault("OFFBOOK_CLIENTS", str(ROOT / ".clients"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def unwatched() -> dict[str, str]:
    """The environment for a process that coverage must not watch: it imports, and takes time."""
    return {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}


@pytest.fixture
def shared_data(request: pytest.FixtureRequest) -> Path:
    """The shared data beside the checkout; only for tests marked ``external``."""
    if request.node.get_closest_marker("external") is None:
        pytest.fail("a test that reads shared_data is marked @pytest.mark.external")
    return SHARED_DATA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SHARED_DATA.is_dir():
        return
    absent = pytest.mark.skip(reason="external: ../shared/data is not beside this checkout")
    for item in items:
        if item.get_closest_marker("external"):
            item.add_marker(absent)
