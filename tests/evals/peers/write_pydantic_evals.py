"""Writes a data set of pydantic-evals, and its verdicts on the answers of the agent."""

import json
import sys
from pathlib import Path

from agent import answer
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Contains, Equals, EqualsExpected, MaxDuration

folder = Path(sys.argv[1])
any_case, exact_case = Contains("REFUNDED", case_sensitive=False), Contains("REFUNDED")
dataset = Dataset(
    name="refunds",
    cases=[
        Case(name="card", inputs="Refund 7", expected_output="Order 7 is refunded."),
        Case(name="cash", inputs="Refund 8", expected_output="Order 8 is refunded."),
        Case(name="any-case", inputs="Refund 7", evaluators=(any_case,)),
        Case(name="exact-case", inputs="Refund 7", evaluators=(exact_case,)),
        Case(name="object", inputs="json", evaluators=(Contains({"ok": True}),)),
        Case(name="other-object", inputs="json", evaluators=(Contains({"ok": False}),)),
        Case(name="whole-object", inputs="json", evaluators=(Equals({"ok": True, "n": 7}),)),
        Case(name="list", inputs="list", evaluators=(Contains("b"),)),
        Case(name="missing-of-list", inputs="list", evaluators=(Contains("z"),)),
        Case(name="nothing-expected", inputs="Refund 7", metadata={"kind": "card"}),
        Case(name="raises", inputs="raise"),
    ],
    evaluators=[EqualsExpected(), MaxDuration(seconds=60)],
)
dataset.to_file(folder / "pydantic-evals.yaml", schema_path=None)
report = dataset.evaluate_sync(answer, progress=False)
verdicts = {
    case.name: all(result.value for result in case.assertions.values()) for case in report.cases
}
verdicts |= {failure.name: False for failure in report.failures}
(folder / "pydantic-evals.verdicts.json").write_text(json.dumps(verdicts, indent=1) + "\n")
