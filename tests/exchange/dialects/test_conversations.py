"""Stored conversations."""

from offbook.exchange import Reply, Request, ToolCall
from offbook.exchange.dialects import MAX_EXCHANGES, ConversationStore


def test_an_exchange_is_found_by_reply_id_and_by_call_id():
    store, request = ConversationStore(), Request(model="m")
    reply = Reply((ToolCall("c1", "look"),))
    store.add("r1", request, reply)
    assert store.get("r1") == (request, reply)
    assert store.reply_with_call("c1") is reply
    assert store.get("r2") is None


def test_the_oldest_exchanges_are_dropped_first():
    store = ConversationStore()
    for number in range(MAX_EXCHANGES + 5):
        reply = Reply((ToolCall(f"c{number}", "look"),))
        store.add(f"r{number}", Request(), reply)
    assert [store.get(f"r{n}") is None for n in (0, 4, 5)] == [True, True, False]
    assert [store.reply_with_call(f"c{n}") is None for n in (4, 5)] == [True, False]
    assert store.get(f"r{MAX_EXCHANGES + 4}") is not None


def test_a_call_id_is_found_by_name_and_arguments():
    store = ConversationStore()
    calls = [ToolCall("c1", "look", {"at": 1}), ToolCall("c2", "look", {"at": 1})]
    store.add("r1", Request(), Reply((*calls, ToolCall("c3", "look", {"at": 2}))))
    assert store.find_call_id("look", {"at": 1}, ()) == "c1"
    assert store.find_call_id("look", {"at": 1}, {"c1"}) == "c2"
    assert store.find_call_id("look", {"at": 1}, {"c1", "c2"}) is None
    assert store.find_call_id("look", {"at": 2}, {"c1"}) == "c3"
    assert store.find_call_id("other", {"at": 1}, ()) is None
