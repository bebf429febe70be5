"""Writes a data set of deepeval in three formats, a test run, and the verdicts."""

import json
import os
import sys
from pathlib import Path

from agent import answer
from deepeval import evaluate
from deepeval.dataset import EvaluationDataset, Golden
from deepeval.evaluate import CacheConfig, DisplayConfig
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase

folder = Path(sys.argv[1]).resolve()
ROWS = [
    {"name": "exact", "input": "Refund 7", "expected_output": "Order 7 is refunded."},
    {"name": "stripped", "input": "Refund 8", "expected_output": "Order 8 is refunded!"},
    {"name": "refused", "input": "Refund 9", "expected_output": "Order 9 is refunded."},
    {"name": "part", "input": "number", "expected_output": "42"},
    {"name": "lines", "input": "lines", "expected_output": "first line\nsecond line 12"},
]
rows = [{**row, "actual_output": answer(row["input"])} for row in ROWS]
dataset = EvaluationDataset(goldens=[Golden(**row) for row in rows])
for kind in ("json", "csv", "jsonl"):
    dataset.save_as(file_type=kind, directory=str(folder), file_name="deepeval")
os.chdir(folder)
os.environ["DEEPEVAL_RESULTS_FOLDER"] = "runs"
result = evaluate(
    [LLMTestCase(**row) for row in rows],
    [ExactMatchMetric()],
    cache_config=CacheConfig(write_cache=False, use_cache=False),
    display_config=DisplayConfig(show_indicator=False, print_results=False),
)
[run] = Path("runs").glob("test_run_*.json")
run.rename("deepeval-run.json")
verdicts = {test.name: bool(test.success) for test in result.test_results}
Path("deepeval.verdicts.json").write_text(json.dumps(verdicts, indent=1) + "\n")
