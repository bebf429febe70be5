"""`--events` and `--otlp`: programs that watch a run, and the id that the agent gets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from offbook.trace import parse_traceparent, run_span_id
from tests.forked import forked_command

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT = 300
PLAYBOOK = "- when: Hello\n  do:\n    - say: Hi!\n"
# It asks the model once, prints the id from the variable and from the header, and waits for stdin.
AGENT = """
import json, os, sys, urllib.request
body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello"}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(url, json.dumps(body).encode()) as response:
    sent = response.headers
print(os.environ["OFFBOOK_CORRELATION_ID"], sent["x-offbook-correlation-id"], flush=True)
print(os.environ["TRACEPARENT"], sent["traceparent"], flush=True)
if "--wait" in sys.argv:
    sys.stdin.readline()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a playbook and an agent."""
    (tmp_path / "shop.yaml").write_text(PLAYBOOK)
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def start(*arguments: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        forked_command("-m", "offbook", *arguments),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run_agent(*arguments: str) -> list[str]:
    agent = forked_command("agent.py")
    return ["run", "--script", "shop.yaml", *arguments, "--", *agent]


def names(lines: list[str]) -> list[str]:
    return [json.loads(line)["event"] for line in lines]


def test_events_arrive_while_the_run_goes_on(project: Path):
    process = start(*run_agent("--events", "-"), "--wait", cwd=project)
    assert process.stdout is not None
    # The agent waits for its stdin: these lines cannot come from its end.
    seen = [process.stdout.readline() for _ in range(3)]
    assert names(seen) == ["_meta.run_start", "model.request", "model.reply"]
    assert process.poll() is None
    rest, _ = process.communicate("go\n", TIMEOUT)
    assert names(rest.splitlines()) == ["check.verdict", "_meta.run_end"]
    assert process.returncode == 0


def test_the_correlation_id_reaches_the_agent_and_every_event(project: Path):
    process = start(*run_agent("--events", "-"), cwd=project)
    out, err = process.communicate(timeout=TIMEOUT)
    events = [json.loads(line) for line in out.splitlines()]
    (correlation,) = {event["context"]["correlation_id"] for event in events}
    ids, contexts = (line.split() for line in err.splitlines()[:2])
    assert ids == [correlation] * 2
    assert {parse_traceparent(text) for text in contexts} == {
        (correlation, run_span_id(correlation))
    }


def test_stdout_has_events_only_and_the_trace_has_the_same(project: Path):
    arguments = run_agent("--events", "-", "--trace", "t.jsonl")
    out, _ = start(*arguments, cwd=project).communicate(timeout=TIMEOUT)
    written = (project / "t.jsonl").read_text().splitlines()
    assert out.splitlines() == written[1:]  # without the header
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 2, 3, 4, 5]


def test_events_are_complete_after_an_interrupt(project: Path):
    with start(*run_agent("--events", "-"), "--wait", cwd=project) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()  # not `communicate`, which ends the agent by closing stdin
    assert process.returncode == 130
    assert names(rest.splitlines())[-1] == "_meta.run_end"
    assert json.loads(rest.splitlines()[-1])["data"]["ok"] is False


def test_a_reader_that_leaves_does_not_fail_the_run(project: Path):
    with start(*run_agent("--events", "-"), "--wait", cwd=project) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write("go\n")
        process.stdin.close()
        assert process.wait(TIMEOUT) == 0


def test_events_of_scenarios_and_of_evals_are_written_to_a_file(tmp_path: Path):
    (tmp_path / "pack.eval.toml").write_text(
        'version = 1\nid = "p"\n[[rubrics]]\nid = "r"\n[[rubrics.assertions]]\n'
        'kind = "output"\ncontains = "H"\n[[cases]]\nid = "a"\nsubject = "shop.py:answer"\n'
        'prompt = "Hello"\nrubrics = ["r"]\n'
    )
    (tmp_path / "shop.py").write_text("def answer(prompt):\n    return prompt\n")
    commands = {
        "scenario": ["scenario", "run", str(EXAMPLES / "scenarios" / "flow.yaml")],
        "eval": ["eval", "run", "pack.eval.toml"],
    }
    for name, command in commands.items():
        process = start(*command, "--events", f"{name}.ndjson", cwd=tmp_path)
        out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, out + err
        lines = (tmp_path / f"{name}.ndjson").read_text().splitlines()
        assert lines, name
        assert all(json.loads(line)["context"]["correlation_id"] for line in lines)


USAGE_ERRORS = {
    "two writers to stdout": (
        ["replay", "c.yaml", "--json", "--events", "-", "--", "true"],
        "--json and --events - both write to stdout",
    ),
    "a folder that does not exist": (
        run_agent("--events", "no/e.ndjson"),
        "cannot write the events",
    ),
}


@pytest.mark.parametrize("case", USAGE_ERRORS)
def test_a_wrong_use_is_named(case: str, project: Path):
    arguments, message = USAGE_ERRORS[case]
    process = start(*arguments, cwd=project)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert message in err


# -------------------------------------------------------------------------------- OpenTelemetry

# An agent with spans of its own, by the SDK of OpenTelemetry. It knows nothing of Offbook.
TRACED_AGENT = """
import json, os, urllib.request
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
parent = propagate.extract({"traceparent": os.environ["TRACEPARENT"]})
with provider.get_tracer("agent").start_as_current_span("think", context=parent):
    headers = {}
    propagate.inject(headers)
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello"}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    urllib.request.urlopen(request).close()
provider.shutdown()
"""


class SpanReceiver(HTTPServer):
    """A collector that keeps the spans that it receives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SpanHandler)
        self.bodies: list[bytes] = []


class _SpanHandler(BaseHTTPRequestHandler):
    server: SpanReceiver  # pyright: ignore[reportIncompatibleVariableOverride] - its own server

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - prints nothing
        pass


def test_the_spans_of_an_agent_join_those_of_its_run(project: Path):
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    (project / "agent.py").write_text(TRACED_AGENT)
    receiver = SpanReceiver()
    thread = Thread(target=receiver.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{receiver.server_port}"
    try:
        process = start(
            *run_agent("--otlp", url),
            cwd=project,
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url},
        )
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()
    assert process.returncode == 0, out + err
    spans = {
        span.name.split()[0]: span
        for body in receiver.bodies
        for resource in service.ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert set(spans) == {"invoke_agent", "think", "chat"}
    assert len({span.trace_id for span in spans.values()}) == 1
    assert spans["think"].parent_span_id == spans["invoke_agent"].span_id
    assert spans["chat"].parent_span_id == spans["think"].span_id


def test_a_collector_that_is_down_does_not_change_the_result(project: Path):
    pytest.importorskip("opentelemetry.proto")
    process = start(*run_agent("--otlp", "http://127.0.0.1:9"), cwd=project)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert "the spans were not sent: http://127.0.0.1:9: the collector cannot be reached" in err
