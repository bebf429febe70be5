"""Coverage for scripts that are started with `-I -S`.

These options leave out `site`, which starts coverage in other processes.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

CONFIG = "COVERAGE_PROCESS_CONFIG"
WRAPPER = """
import os, sys
from importlib.util import spec_from_file_location
before = os.environ.get({CONFIG!r})
os.environ[{CONFIG!r}] = {config!r}
sys.path.append({packages!r})
from coverage import process_startup
process_startup()
sys.path.pop()
if before is None:
    del os.environ[{CONFIG!r}]
else:
    os.environ[{CONFIG!r}] = before
spec = spec_from_file_location({module!r}, {script!r})
code = spec.loader.get_code({module!r})
exec(code, {{"__name__": "__main__", "__file__": {script!r}, "__spec__": spec}})
"""


def measure_script(patch: pytest.MonkeyPatch, folder: Path, module: str, place: str) -> None:
    """Replace the path at `place` by a script that measures this module, if we are measured."""
    config = os.environ.get(CONFIG)
    if config is None:
        return
    coverage, spec = find_spec("coverage"), find_spec(module)
    assert coverage
    assert coverage.origin
    assert spec
    path = folder / f"{module}.py"
    path.write_text(
        WRAPPER.format(
            CONFIG=CONFIG,
            config=config,
            packages=str(Path(coverage.origin).parents[1]),
            module=module,
            script=spec.origin,
        )
    )
    patch.setattr(place, str(path))
