"""Cassettes of vcrpy become cassettes of Offbook. `vcr_cassette.yaml` was recorded by vcrpy 9.4.

It has two requests of a tool loop, a stream, and a request to no model.
"""

import gzip
import zlib
from base64 import b64encode, encodebytes
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from offbook import Cassette, session
from offbook.errors import FormatError
from offbook.exchange import Reply, Request, Text, detect_dialect
from offbook.exchange.dialects import ConversationStore, HttpRequest
from offbook.files import dump_yaml, parse_yaml
from offbook.sources.importers import Skipped, read_trace, write_cassette

RECORDED = Path(__file__).with_name("vcr_cassette.yaml")


def read_interactions() -> list[dict[str, Any]]:
    return parse_yaml(RECORDED.read_text(), RECORDED)["interactions"]


def write_json(path: Path, *interactions: dict[str, Any]) -> Path:
    """Write what the JSON serializer of vcrpy writes."""
    path.write_bytes(msgspec.json.encode({"version": 1, "interactions": interactions}))
    return path


def test_the_requests_to_a_model_are_read_and_others_counted():
    skipped = Skipped()
    exchanges = read_trace(RECORDED, skipped=skipped)
    assert [exchange.prompt for exchange in exchanges] == [
        "Refund order 7",
        "Refund order 7",
        "Thank you",
    ]
    assert exchanges[0].reply.calls[0].arguments == {"id": 7}
    assert list(exchanges[1].results.values()) == ["order 7: a kettle"]
    assert [exchange.reply.text for exchange in exchanges[1:]] == [
        "Refunded order 7.",
        "You are welcome.",  # a stream
    ]
    assert skipped == {"request to 127.0.0.1:4777": 1}


def test_the_cassette_is_replayed(tmp_path: Path):
    *_, last = read_trace(RECORDED)
    assert write_cassette([last], tmp_path / "thanks.yaml") == 1
    with session(source=Cassette(tmp_path / "thanks.yaml")) as rehearsal:
        assert rehearsal.run("Thank you").output == "You are welcome."


def write_yaml(path: Path, body: bytes, encoding: str, interaction: dict[str, Any]) -> Path:
    """Write what vcrpy writes of a response whose body is bytes."""
    response = interaction["response"]
    response["body"] = {"string": "BODY"}
    response["headers"]["Content-Encoding"] = [encoding]
    lines = encodebytes(body).decode().splitlines()
    tagged = "\n".join(["!!binary |", *(" " * 12 + line for line in lines)])
    text = dump_yaml({"interactions": [interaction]})
    assert "string: BODY" in text
    path.write_text(text.replace("string: BODY", f"string: {tagged}"))
    return path


def compress_twice(body: bytes) -> bytes:
    return gzip.compress(zlib.compress(body))


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    "encoding, compress",
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("deflate, gzip", compress_twice),
        ("identity", bytes),
        ("", bytes),
        ("gzip", bytes),  # the client has decoded it, and kept the header
    ],
)
def test_a_body_of_bytes_is_read(tmp_path: Path, encoding: str, compress: Any):
    _, interaction, *_ = read_interactions()
    body = compress(interaction["response"]["body"]["string"].encode())
    (exchange,) = read_trace(write_yaml(tmp_path / "vcr.yaml", body, encoding, interaction))
    assert exchange.reply.text == "Refunded order 7."


def test_a_body_in_base64_is_read(tmp_path: Path):
    _, interaction, *_ = read_interactions()
    body = interaction["response"]["body"]
    body["base64_string"] = b64encode(body.pop("string").encode()).decode()
    (exchange,) = read_trace(write_json(tmp_path / "vcr.json", interaction))
    assert exchange.reply.text == "Refunded order 7."


def post(uri: str, sent: Any, got: Any) -> dict[str, Any]:
    """Return an interaction in JSON."""
    return {
        "request": {"method": "POST", "uri": uri, "body": msgspec.json.encode(sent).decode()},
        "response": {
            "status": {"code": 200},
            "headers": {"content-type": ["application/json"]},
            "body": {"string": msgspec.json.encode(got).decode()},
        },
    }


def read_http(interaction: dict[str, Any]) -> Request:
    """Return the request of an interaction, as a running agent sends it."""
    recorded = interaction["request"]
    url = urlsplit(str(recorded["uri"]))
    headers = {"host": url.netloc, "content-type": "application/json"}
    http_request = HttpRequest("POST", url.path, headers, recorded["body"].encode(), url.query)
    dialect = detect_dialect(http_request)
    assert dialect is not None
    return dialect.decode(http_request, ConversationStore())


def test_a_binary_stream_is_read(tmp_path: Path):
    uri = "https://bedrock-runtime.us-east-1.amazonaws.com/model/nova/converse-stream"
    interaction = post(uri, {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}, {})
    request = read_http(interaction)
    dialect = detect_dialect(HttpRequest("POST", urlsplit(uri).path))
    assert dialect is not None
    stream = dialect.encode(Reply((Text("Hello"),)), request)
    interaction["response"]["headers"] = {"content-type": [stream.headers["content-type"]]}
    body = b"".join(stream.chunks)
    (exchange,) = read_trace(write_yaml(tmp_path / "vcr.yaml", body, "", interaction))
    assert (exchange.prompt, exchange.reply.text) == ("Hi", "Hello")


UNREADABLE: dict[str, tuple[bytes, str, str]] = {
    "an encoding without a decoder": (b"\x8b\x0b\x80", "br", "content-encoding br"),
    "bytes that are no JSON": (b"\x00\x01", "", "invalid response of the provider"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_response_is_counted_and_is_no_error_of_the_provider(
    tmp_path: Path, name: str
):
    body, encoding, reason = UNREADABLE[name]
    interaction, *_ = read_interactions()
    path = write_yaml(tmp_path / "vcr.yaml", body, encoding, interaction)
    skipped = Skipped()
    with pytest.raises(FormatError, match=rf"skipped: 1 x unreadable response \({reason}"):
        read_trace(path, skipped=skipped)
    assert sum(skipped.values()) == 1


@pytest.mark.parametrize("text", ["e", "\u00e9"])
def test_a_body_that_is_no_base64_is_unreadable(tmp_path: Path, text: str):
    interaction, *_ = read_interactions()
    interaction["response"]["body"] = {"base64_string": text}
    path = write_json(tmp_path / "vcr.json", interaction)
    with pytest.raises(FormatError, match=r"unreadable response \(invalid base64"):
        read_trace(path)


def test_an_error_in_a_stream_is_one_of_the_provider(tmp_path: Path):
    sent = {"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    interaction = post("https://api.anthropic.com/v1/messages", {**sent, "stream": True}, {})
    response = interaction["response"]
    response["headers"] = {"content-type": ["text/event-stream"]}
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "zu früh"}}
    text = msgspec.json.encode(error).decode().replace("ü", "\\u00fc")
    response["body"] = {"string": f"event: error\ndata: {text}\n\n"}
    (exchange,) = read_trace(write_json(tmp_path / "vcr.json", interaction))
    assert exchange.error is not None
    assert exchange.error.message == "zu früh"


def test_an_invalid_address_is_counted(tmp_path: Path):
    first, second, *_ = read_interactions()
    first["request"]["uri"] = "http://[::1/v1/chat/completions"
    skipped = Skipped()
    read_trace(write_json(tmp_path / "vcr.json", first, second), skipped=skipped)
    assert skipped == {"unreadable request (invalid URI: Invalid IPv6 URL)": 1}


CHAT = "https://api.openai.com/v1/chat/completions"
MESSAGES = "https://api.anthropic.com/v1/messages"
CHAT_REPLY = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Done."}}],
}
ANTHROPIC_REPLY = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
REMINDER = {"type": "text", "text": "<system-reminder>be nice</system-reminder>"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOL_USE: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
SENT: dict[str, tuple[str, list[Any], Any]] = {
    "a reminder before the prompt": (
        MESSAGES,
        [{"role": "user", "content": [REMINDER, {"type": "text", "text": "Refund"}]}],
        ANTHROPIC_REPLY,
    ),
    "a reminder after a result": (
        MESSAGES,
        [
            {"role": "user", "content": "Refund"},
            {"role": "assistant", "content": [TOOL_USE]},
            {"role": "user", "content": [TOOL_RESULT, REMINDER]},
        ],
        ANTHROPIC_REPLY,
    ),
    "an image after the prompt": (
        CHAT,
        [
            {"role": "user", "content": "Refund"},
            {"role": "assistant", "content": "Send me a picture."},
            {"role": "user", "content": [IMAGE]},
        ],
        CHAT_REPLY,
    ),
}


@pytest.mark.parametrize("name", SENT)
async def test_the_request_that_was_imported_is_replayed(tmp_path: Path, name: str):
    uri, messages, got = SENT[name]
    tools = [{"name": "find", "input_schema": {"type": "object"}}] if uri == MESSAGES else []
    more = {"max_tokens": 9, "tools": tools} if tools else {}
    interaction = post(uri, {"model": "m", "messages": messages, **more}, got)
    exchanges = read_trace(write_json(tmp_path / "vcr.json", interaction))
    assert [exchange.prompt for exchange in exchanges] == ["Refund"]
    write_cassette(exchanges, tmp_path / "one.yaml")
    reply = await Cassette(tmp_path / "one.yaml").reply(read_http(interaction))
    assert reply.text == "Done."


GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"
OLLAMA = "http://localhost:11434/api/chat"


def gemini(prompt: str, *steps: tuple[int, str]) -> list[dict[str, Any]]:
    """Return the interactions of a loop in a format without the ids of calls."""
    contents: list[Any] = [{"role": "user", "parts": [{"text": prompt}]}]
    found: list[dict[str, Any]] = []
    for number, result in steps:
        call = {"functionCall": {"name": "find", "args": {"id": number}}}
        message = {"role": "model", "parts": [call]}
        found.append(post(GEMINI, {"contents": contents}, {"candidates": [{"content": message}]}))
        response = {"functionResponse": {"name": "find", "response": {"result": result}}}
        contents = [*contents, message, {"role": "user", "parts": [response]}]
    end = {"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}
    return [*found, post(GEMINI, {"contents": contents}, {"candidates": [end]})]


def ollama(prompt: str, *steps: tuple[int, str]) -> list[dict[str, Any]]:
    """Return the same interactions in the format of Ollama."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    found: list[dict[str, Any]] = []
    ended = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True}
    for number, result in steps:
        call = {"function": {"name": "find", "arguments": {"id": number}}}
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        sent = {"model": "m", "messages": messages, "stream": False}
        found.append(post(OLLAMA, sent, {**ended, "message": message}))
        messages = [*messages, message, {"role": "tool", "tool_name": "find", "content": result}]
    sent = {"model": "m", "messages": messages, "stream": False}
    end = {"role": "assistant", "content": "ok"}
    return [*found, post(OLLAMA, sent, {**ended, "message": end})]


STEPS = {
    "two calls": [("Find", (7, "kettle"), (8, "toaster"))],
    "the same call again": [("Wait", (7, "pending"), (7, "paid"))],
    "two conversations": [("One", (7, "kettle")), ("Two", (7, "toaster"))],
}


@pytest.mark.parametrize("talk", [gemini, ollama])
@pytest.mark.parametrize("name", STEPS)
def test_calls_without_ids_have_their_own_results(tmp_path: Path, talk: Any, name: str):
    interactions = [each for prompt, *steps in STEPS[name] for each in talk(prompt, *steps)]
    write_cassette(
        read_trace(write_json(tmp_path / "vcr.json", *interactions)), tmp_path / "a.yaml"
    )
    tape = parse_yaml((tmp_path / "a.yaml").read_text())
    tools = [tool for item in tape["interactions"] for tool in item.get("tools", ())]
    assert [(tool["input"]["id"], tool["result"]) for tool in tools] == [
        step for _, *steps in STEPS[name] for step in steps
    ]
    assert len({tool["call"] for tool in tools}) == len(tools)


def test_a_call_whose_arguments_the_client_changed_has_its_result(tmp_path: Path):
    first, second, *_ = read_interactions()
    body = second["request"]["body"]
    second["request"]["body"] = body.replace('{\\"id\\":7}', '{\\"id\\":7,\\"all\\":null}')
    assert second["request"]["body"] != body
    _, exchange = read_trace(write_json(tmp_path / "vcr.json", first, second))
    assert list(exchange.results.values()) == ["order 7: a kettle"]


def test_conversations_at_the_same_time_keep_their_results(tmp_path: Path):
    one, two = gemini("One", (7, "kettle")), gemini("Two", (7, "kettle"))
    exchanges = read_trace(write_json(tmp_path / "vcr.json", one[0], two[0], one[1], two[1]))
    assert write_cassette(exchanges, tmp_path / "a.yaml") == 4
    assert (tmp_path / "a.yaml").read_text().count("result: kettle") == 2


def test_a_request_that_continues_a_response_by_its_id_has_its_prompt(tmp_path: Path):
    uri = "https://api.openai.com/v1/responses"
    call = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "find", "arguments": "{}"}
    text: dict[str, Any] = {"type": "output_text", "text": "Done.", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
    response = {"object": "response", "status": "completed", "model": "m"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "kettle"}
    first, second = read_trace(
        write_json(
            tmp_path / "vcr.json",
            post(uri, {"model": "m", "input": "Hi"}, {**response, "id": "r1", "output": [call]}),
            post(
                uri,
                {"model": "m", "previous_response_id": "r1", "input": [output]},
                {**response, "id": "r2", "output": [message]},
            ),
        )
    )
    assert (first.prompt, second.prompt, second.results) == ("Hi", "Hi", {"c1": "kettle"})


def test_an_error_of_the_provider_is_an_error(tmp_path: Path):
    interaction, *_ = read_interactions()
    interaction["response"]["status"] = {"code": 429, "message": "Too Many Requests"}
    interaction["response"]["body"] = {"string": '{"error": {"message": "slow down"}}'}
    (exchange,) = read_trace(write_json(tmp_path / "limited.json", interaction))
    assert exchange.error is not None
    assert (exchange.error.status, "slow down" in str(exchange.error)) == (429, True)


def test_a_recording_without_a_model_is_refused(tmp_path: Path):
    *_, other = read_interactions()
    with pytest.raises(FormatError, match="the file contains no reply of a model"):
        read_trace(write_json(tmp_path / "other.json", other))
