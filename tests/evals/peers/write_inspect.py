"""Writes a data set of Inspect, its logs with each scorer, and the verdicts."""

import json
import os
import shutil
import sys
from pathlib import Path

import inspect_ai
from agent import answer
from inspect_ai import Task
from inspect_ai.dataset import json_dataset
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import answer as answers
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate

folder = Path(sys.argv[1]).resolve()
ROWS = [
    {"id": "refunded", "input": "Refund 7", "target": "order 7"},
    {"id": "several", "input": "Refund 8", "target": ["cancelled", "refunded"]},
    {"id": "refused", "input": "Refund 9", "target": "refunded"},
    {"id": "end", "input": "number", "target": "42"},
    {"id": "choice", "input": "choice", "target": "B"},
    {"id": "twice", "input": "twice", "target": "B"},
    {"id": "lines", "input": "lines", "target": "line 12"},
    {"id": "whole", "input": "Refund 7", "target": "Order 7 is refunded"},
]
SCORERS = {
    "includes": includes(),
    "includes-case": includes(ignore_case=False),
    "match-end": match(),
    "match-begin": match(location="begin"),
    "match-exact": match(location="exact", ignore_case=False),
    "match-any": match(location="any"),
    "answer-letter": answers("letter"),
    "answer-word": answers("word"),
    "answer-line": answers("line"),
}


def reply(text: str) -> ModelOutput:
    """Return a reply with its usage: otherwise mockllm downloads a tokenizer."""
    output = ModelOutput.from_content("mockllm", text)
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


os.chdir(folder)  # so that a log has no path of this machine
data = Path("inspect-data.jsonl")
data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
verdicts = {}
for name, scorer in SCORERS.items():
    replies = [reply(answer(row["input"])) for row in ROWS]
    kind = "json" if name == "match-end" else "eval"
    [log] = inspect_ai.eval(
        Task(dataset=json_dataset(str(data)), solver=generate(), scorer=scorer),
        model=get_model("mockllm/model", custom_outputs=replies),
        display="none",
        log_dir=f"logs/{name}",
        log_format=kind,
        max_samples=1,
    )
    assert log.status == "success", log.error
    [path] = Path("logs", name).glob(f"*.{kind}")
    shutil.copy(path, f"inspect-{name}.{kind}")
    verdicts[f"inspect-{name}.{kind}"] = {
        str(sample.id): all(score.value == "C" for score in sample.scores.values())
        for sample in log.samples
    }
Path("inspect.verdicts.json").write_text(json.dumps(verdicts, indent=1) + "\n")
