"""Conversations that the provider keeps."""

from offbook.exchange.dialects.conversations import MAX_EXCHANGES, ConversationStore
from offbook.exchange.messages import ToolCall
from offbook.exchange.model import Reply, Request


def test_an_exchange_is_recalled_by_its_reply_and_by_its_calls():
    threads, request = ConversationStore(), Request(model="m")
    reply = Reply((ToolCall("c1", "look"),))
    threads.add("r1", request, reply)
    assert threads.get("r1") == (request, reply)
    assert threads.reply_with_call("c1") is reply
    assert threads.get("r2") is None


def test_only_so_many_are_kept_and_the_oldest_go_first():
    threads = ConversationStore()
    for number in range(MAX_EXCHANGES + 5):
        reply = Reply((ToolCall(f"c{number}", "look"),))
        threads.add(f"r{number}", Request(), reply)
    assert [threads.get(f"r{n}") is None for n in (0, 4, 5)] == [True, True, False]
    assert [threads.reply_with_call(f"c{n}") is None for n in (4, 5)] == [True, False]
    assert threads.get(f"r{MAX_EXCHANGES + 4}") is not None


def test_a_call_is_found_by_what_it_asks_for_each_once():
    threads = ConversationStore()
    calls = [ToolCall("c1", "look", {"at": 1}), ToolCall("c2", "look", {"at": 1})]
    threads.add("r1", Request(), Reply((*calls, ToolCall("c3", "look", {"at": 2}))))
    assert threads.find_call_id("look", {"at": 1}, ()) == "c1"
    assert threads.find_call_id("look", {"at": 1}, {"c1"}) == "c2"
    assert threads.find_call_id("look", {"at": 1}, {"c1", "c2"}) is None
    assert threads.find_call_id("look", {"at": 2}, {"c1"}) == "c3"
    assert threads.find_call_id("other", {"at": 1}, ()) is None
