"""Files, vector stores and batches: what is stored comes back, and a script answers the rest."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from offbook import Playbook, Server, call, drive, role, say, when
from offbook.errors import ScriptExhausted, UsageError

CHATS = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


def run(work: Callable[[], Any], *roles: Any) -> Any:
    """Return the result of the work of an agent that makes one request besides."""
    results: list[Any] = []

    def agent(prompt: str) -> str | None:
        results.append(work())
        client = openai.OpenAI()
        messages: Any = [{"role": "user", "content": prompt}]
        reply = client.chat.completions.create(model="gpt-5", messages=messages)
        return reply.choices[0].message.content

    with drive(agent) as rehearsal:
        assert rehearsal.run(when("Go", [say("Done.")]), *roles).output == "Done."
    return results[0]


def upload(content: bytes, purpose: Any = "user_data") -> str:
    return openai.OpenAI().files.create(file=("a.txt", content), purpose=purpose).id


def lines(*bodies: dict[str, Any], url: str = CHATS) -> bytes:
    entries = [
        {"custom_id": f"r{number}", "method": "POST", "url": url, "body": body}
        for number, body in enumerate(bodies)
    ]
    return b"\n".join(json.dumps(entry).encode() for entry in entries)


def chat(text: str, **options: Any) -> dict[str, Any]:
    return {"model": "mini", "messages": [{"role": "user", "content": text}], **options}


def make_batch(content: bytes, endpoint: Any = CHATS) -> Any:
    client = openai.OpenAI()
    file_id = upload(content, "batch")
    made = client.batches.create(input_file_id=file_id, endpoint=endpoint, completion_window="24h")
    return made, client.batches.retrieve(made.id)


ANSWERS = role("batch", [say("One."), say("Two.")], model="mini")


# ------------------------------------------------------------------------------------ OpenAI


def test_a_file_comes_back_as_it_was():
    content = b"\x00\xff\r\n--boundary\r\n caf\xc3\xa9"

    def work() -> Any:
        client = openai.OpenAI()
        file = client.files.retrieve(upload(content))
        return file.filename, file.bytes, client.files.content(file.id).read()

    assert run(work) == ("a.txt", len(content), content)


def test_a_file_that_was_deleted_is_not_found():
    def work() -> Any:
        client = openai.OpenAI()
        kept, gone = upload(b"1"), upload(b"2")
        assert client.files.delete(gone).deleted
        assert [file.id for file in client.files.list()] == [kept]
        with pytest.raises(openai.NotFoundError, match=f"No such File object: {gone}"):
            client.files.content(gone)

    run(work)


def test_the_files_of_one_run_are_unknown_to_the_next():
    first = run(lambda: upload(b"1"))

    def work() -> Any:
        with pytest.raises(openai.NotFoundError):
            openai.OpenAI().files.retrieve(first)
        return list(openai.OpenAI().files.list())

    assert run(work) == []


def test_a_vector_store_has_its_files():
    def work() -> Any:
        stores = openai.OpenAI().vector_stores
        store = stores.create(name="docs", file_ids=[upload(b"12")])
        added = stores.files.create(store.id, file_id=upload(b"345"))
        full = stores.retrieve(store.id)
        stores.files.delete(added.id, vector_store_id=store.id)
        batch = stores.file_batches.create(store.id, file_ids=[added.id])
        named = stores.update(store.id, name="more")
        counts = [store.file_counts.total, full.file_counts.total, batch.file_counts.total]
        assert stores.delete(store.id).deleted
        return counts, full.usage_bytes, len(stores.list().data), named.name

    assert run(work) == ([1, 2, 1], 5, 0, "more")


def test_a_vector_store_refuses_a_file_that_does_not_exist():
    def work() -> Any:
        with pytest.raises(openai.NotFoundError, match="No such File object: file-1"):
            openai.OpenAI().vector_stores.create(file_ids=["file-1"])

    run(work)


@pytest.mark.parametrize("said, found", [("Aisle 3", ["Aisle 3"]), ("", [])])
def test_a_search_finds_what_the_script_says(said: str, found: list[str]):
    def work() -> Any:
        stores = openai.OpenAI().vector_stores
        page = stores.search(stores.create().id, query="Where are lamps?")
        return [content.text for result in page for content in result.content]

    answer = role("search", [say(said)], model="vector_store", first="Where are lamps?")
    assert run(work, answer) == found


def test_a_search_that_is_not_scripted_fails_the_run():
    def work() -> Any:
        stores = openai.OpenAI().vector_stores
        return stores.search(stores.create().id, query="Where are lamps?")

    with pytest.raises(ScriptExhausted):
        run(work)


def test_a_batch_ends_with_an_answer_of_the_script_to_each_line():
    def work() -> Any:
        made, ended = make_batch(lines(chat("1"), chat("2")))
        output = openai.OpenAI().files.content(ended.output_file_id).text
        answers = [json.loads(line) for line in output.splitlines()]
        texts = {
            answer["custom_id"]: answer["response"]["body"]["choices"][0]["message"]["content"]
            for answer in answers
        }
        return made.status, ended.status, ended.request_counts.completed, texts

    assert run(work, ANSWERS) == ("validating", "completed", 2, {"r0": "One.", "r1": "Two."})


def test_the_requests_of_a_batch_are_in_the_trace():
    def agent(_prompt: str) -> str:
        make_batch(lines(chat("1"), chat("2")))
        return "made"

    with drive(agent) as rehearsal:
        made = rehearsal.run(when("Go", []), ANSWERS)
    assert [request.messages[-1].text for request in made.requests] == ["1", "2"]


@pytest.mark.parametrize(
    "body, message",
    [
        ({"model": "mini"}, "Missing required parameter: 'messages'"),
        (chat("1", stream=True), "A request of a batch cannot be streamed."),
    ],
)
def test_a_refused_line_is_in_the_file_of_errors(body: dict[str, Any], message: str):
    def work() -> Any:
        _, ended = make_batch(lines(body, chat("2")))
        errors = openai.OpenAI().files.content(ended.error_file_id).text
        counts = ended.request_counts
        return (counts.completed, counts.failed), json.loads(errors)["response"]

    answers = ANSWERS if body.get("stream") else role("batch", [say("Two.")], model="mini")
    counts, response = run(work, answers)
    assert counts == (1, 1)
    assert response["status_code"] == 400
    assert message in response["body"]["error"]["message"]


@pytest.mark.parametrize(
    "content, endpoint, code, line",
    [
        (b"{", CHATS, "invalid_json_line", 1),
        (b"", CHATS, "empty_file", 0),
        (lines(chat("1"), url="/v1/responses"), CHATS, "mismatched_endpoint", 1),
        (lines(chat("1")) + b"\n" + lines(chat("2")), CHATS, "duplicate_custom_id", 2),
        (lines(chat("1"), url="/v1/videos"), "/v1/videos", "invalid_endpoint", 0),
    ],
)
def test_a_wrong_file_fails_its_batch(content: bytes, endpoint: str, code: str, line: int):
    made, ended = run(lambda: make_batch(content, endpoint))
    assert made.status == ended.status == "failed"
    [error] = ended.errors.data
    assert (error.code, error.line) == (code, line)


def test_a_batch_that_has_ended_cannot_be_cancelled():
    def work() -> Any:
        made, _ = make_batch(lines(chat("1"), chat("2")))
        with pytest.raises(openai.ConflictError, match="status 'completed'"):
            openai.OpenAI(max_retries=0).batches.cancel(made.id)
        return [batch.id for batch in openai.OpenAI().batches.list()] == [made.id]

    assert run(work, ANSWERS)


def test_a_tool_call_is_no_result_of_a_search():
    def work() -> Any:
        stores = openai.OpenAI().vector_stores
        return stores.search(stores.create().id, query="lamps")

    answer = role("search", [call("find", {}, unknown=True)], model="vector_store")
    with pytest.raises(UsageError, match="cannot script a tool call for a search"):
        run(work, answer)


# --------------------------------------------------------------------------------- Anthropic


def message(custom_id: str, text: str, **options: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    params = {"model": "mini", "max_tokens": 9, "messages": messages, **options}
    return {"custom_id": custom_id, "params": params}


def read_results(batches: Any, batch_id: str) -> dict[str, str]:
    results = {result.custom_id: result.result for result in batches.results(batch_id)}
    return {
        name: result.message.content[0].text
        if result.type == "succeeded"
        else result.error.error.message
        for name, result in results.items()
    }


def test_a_batch_of_messages_ends_with_an_answer_to_each():
    def work() -> Any:
        batches = anthropic.Anthropic().messages.batches
        made = batches.create(requests=[message("a", "1"), message("b", "2")])
        ended = batches.retrieve(made.id)
        states = made.processing_status, ended.processing_status, ended.request_counts.succeeded
        return states, read_results(batches, made.id)

    states, results = run(work, ANSWERS)
    assert states == ("in_progress", "ended", 2)
    assert results == {"a": "One.", "b": "Two."}


def test_a_refused_message_is_an_error_of_its_own():
    def work() -> Any:
        batches = anthropic.Anthropic().messages.batches
        wrong = message("a", "1", messages=[])
        made = batches.create(requests=[wrong, message("b", "2")])
        return batches.retrieve(made.id).request_counts.errored, read_results(batches, made.id)

    errored, results = run(work, role("batch", [say("Two.")], model="mini"))
    assert errored == 1
    assert results["b"] == "Two."
    assert "messages" in results["a"]


@pytest.mark.parametrize(
    "requests, wrong",
    [([], "at least 1 item"), ([message("a", "1"), message("a", "2")], "must be unique")],
)
def test_a_wrong_batch_of_messages_is_refused(requests: list[Any], wrong: str):
    def work() -> Any:
        with pytest.raises(anthropic.BadRequestError, match=wrong):
            anthropic.Anthropic().messages.batches.create(requests=requests)

    run(work)


def test_the_results_of_a_served_batch_are_at_its_endpoint():
    playbook = Playbook()
    playbook.load(when("1", [say("One.")]))
    with Server() as server:
        endpoint = server.mount(playbook)
        client = anthropic.Anthropic(base_url=endpoint.anthropic)
        made = client.messages.batches.create(requests=[message("a", "1")])
        ended = client.messages.batches.retrieve(made.id)
        assert str(ended.results_url).startswith(endpoint.url)
        assert read_results(client.messages.batches, made.id) == {"a": "One."}
        client.close()


def test_a_file_of_anthropic_is_kept_until_it_is_deleted():
    def work() -> Any:
        files = anthropic.Anthropic().beta.files
        file = files.upload(file=("a.txt", b"Hello", "text/plain"))
        content = files.download(file.id).read()
        listed = [each.id for each in files.list()] == [file.id]
        files.delete(file.id)
        with pytest.raises(anthropic.NotFoundError):
            files.retrieve_metadata(file.id)
        return file.filename, file.mime_type, file.size_bytes, content, listed

    assert run(work) == ("a.txt", "text/plain", 5, b"Hello", True)
