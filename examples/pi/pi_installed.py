"""The pi and the extensions that `./dev clients` installs, and marks for tests that need them."""

import os
from pathlib import Path

import pytest

from offbook.clis import Pi

ROOT = Path(__file__).resolve().parents[2]
# Where Offbook searches for clients before the PATH.
CLIENTS = Path(os.environ.setdefault("OFFBOOK_CLIENTS", str(ROOT / ".clients"))).resolve()
PACKAGES = CLIENTS / "pi-extensions" / "node_modules"
PI_0_87 = CLIENTS / "pi-0.87" / "node_modules" / ".bin" / "pi"


def needs(found, what):
    return pytest.mark.skipif(not found, reason=f"{what} not installed: run ./dev clients")


needs_pi = needs(Pi.client.find(), "pi is")
needs_extensions = needs(Pi.client.find() and PACKAGES.is_dir(), "extensions of pi are")
needs_pi_0_87 = needs(PACKAGES.is_dir() and PI_0_87.exists(), "pi 0.87 is")
