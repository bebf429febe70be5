"""An odd result has other texts and numbers, and says the same about success."""

import json
from typing import Any

import pytest

from offbook.determinism.faults import Fault
from offbook.subjects.faulty_results import finish_call

NOT_USED: Any = None  # the injector, which other faults need


@pytest.mark.parametrize("ok", [True, False])
def test_an_odd_result_keeps_its_booleans(ok: bool):  # noqa: FBT001 - a parameter of the table
    value = json.dumps({"ok": ok, "count": 3})
    changed = json.loads(finish_call(Fault("tool_odd", 1), value, NOT_USED))
    assert changed == {"ok": ok, "count": -4}
