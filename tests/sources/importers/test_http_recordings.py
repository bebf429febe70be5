"""Cassettes of vcrpy become cassettes of Offbook. `vcr_cassette.yaml` was recorded by vcrpy 9.4.

It has two requests of a tool loop, a stream, and a request to no model.
"""

import gzip
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook import Cassette, session
from offbook.errors import FormatError
from offbook.files import parse_yaml
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


def test_a_compressed_body_is_read(tmp_path: Path):
    _, interaction, *_ = read_interactions()
    response = interaction["response"]
    compressed = gzip.compress(response["body"]["string"].encode())
    response["body"]["string"] = b64encode(compressed).decode()  # `!!binary` of YAML
    response["headers"]["Content-Encoding"] = ["gzip"]
    (exchange,) = read_trace(write_json(tmp_path / "zipped.json", interaction))
    assert exchange.reply.text == "Refunded order 7."


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
