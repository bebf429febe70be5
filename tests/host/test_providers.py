"""The real providers of host capabilities."""

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from offbook.errors import HostError, UsageError
from offbook.host import HostWorkspace
from offbook.testing import host_call, register_host_provider, with_host_mocks


@pytest.fixture(autouse=True)
def real_host() -> Iterator[None]:
    with with_host_mocks(allow=["*"]):
        yield


def test_a_workspace_reads_and_writes_files_below_its_folder(tmp_path: Path):
    undo = register_host_provider("workspace", HostWorkspace(tmp_path))
    host_call("workspace.write_text", {"path": "a/b.txt", "content": "hello"})
    assert host_call("workspace.read_text", {"path": "a/b.txt"}) == "hello"
    assert host_call("workspace.list") == ["a"]
    host_call("workspace.delete", {"path": "a/b.txt"})
    assert host_call("workspace.exists", {"path": "a/b.txt"}) is False
    undo()


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x"])
def test_a_path_out_of_the_workspace_is_refused(path: str):
    with pytest.raises(UsageError, match="leads out of the workspace"):
        host_call("workspace.read_text", {"path": path})


def test_a_missing_file_is_an_error_of_the_host():
    with pytest.raises(HostError, match=r"no\.txt: No such file"):
        host_call("workspace.read_text", {"path": "no.txt"})


def test_a_wrong_parameter_is_a_usage_error():
    with pytest.raises(UsageError, match="did you mean 'path'"):
        host_call("workspace.read_text", {"pth": "a"})


def test_a_process_returns_its_output_and_exit_code():
    code = "import sys; print(sys.stdin.read()); sys.exit(3)"
    argv = [sys.executable, "-c", code]
    assert host_call("process.exec", {"argv": argv, "stdin": "hi"}) == {
        "stdout": "hi\n",
        "stderr": "",
        "exit_code": 3,
    }


def test_a_process_that_takes_too_long_is_killed():
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(HostError, match=r"took longer than 0.1 s"):
        host_call("process.exec", {"argv": argv, "timeout_s": 0.1})


def test_a_command_line_is_no_list_of_words():
    with pytest.raises(UsageError, match="argv: expected a list, got a text"):
        host_call("process.exec", {"argv": "ls -l"})


def test_the_clock_gives_the_time_as_a_number_and_as_a_text():
    assert host_call("clock.now").endswith("+00:00")
    assert host_call("clock.sleep", {"ms": 0}) is None


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(404)
        self.end_headers()
        self.wfile.write(body.upper())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its signature
        pass


def test_http_returns_status_and_body_also_of_an_error():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.handle_request)
    thread.start()
    params = {
        "url": f"http://127.0.0.1:{server.server_port}/",
        "method": "POST",
        "body": "abc",
    }
    answer = host_call("http.request", params)
    thread.join()
    server.server_close()
    assert (answer["status"], answer["body"]) == (404, "ABC")


def test_http_does_not_read_files():
    with pytest.raises(UsageError, match="unsupported address"):
        host_call("http.request", {"url": "file:///etc/passwd"})


def test_another_provider_can_be_a_dict_of_functions():
    undo = register_host_provider("project", {"skills": lambda: ["a"]})
    with with_host_mocks(allow=["project.skills"]):
        assert host_call("project.skills") == ["a"]
    undo()
    with pytest.raises(UsageError, match="no provider knows"):
        with_host_mocks([{"capability": "project", "operation": "skills"}], lambda: None)
