"""The first test of the README fails if its agent is broken."""

from pathlib import Path

import pytest

from tests.docs.examples import ExampleError, run_page

README = Path(__file__).resolve().parents[2] / "README.md"
RULE = 'if params["id"] not in self.found:'
REFUSAL = 'return {"content": "look up the order first", "is_error": True}'
TOOL = '@api.tool("refund", "Refund an order.", ORDER)'
BREAKS = {
    "refunds without a rule": (RULE, "if False:", "assert [7] == []"),
    "returns nothing": (REFUSAL, "return None", "assert '' == 'look up the order first'"),
    "has no such tool": (TOOL, "", "no tool 'refund'"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_first_test_of_the_readme_fails_for_an_agent_that(name: str, tmp_path: Path):
    working, broken, message = BREAKS[name]
    text = README.read_text(encoding="utf-8")
    assert text.count(working) == 1
    page = tmp_path / "README.md"
    page.write_text(text.replace(working, broken), encoding="utf-8")
    with pytest.raises(ExampleError) as failure:
        run_page(page, tmp_path)
    assert message in str(failure.value)
