"""The rules of the agent hold, whatever the model does."""

import pytest
from support import Shop, make_agent

from offbook import call, drive, say, when


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def agent(offbook, shop):
    return offbook.drive(make_agent(), deps=shop)


def test_an_order_is_found_and_refunded(agent, shop):
    run = agent.run(
        when("Refund order 7", [
            call("find_order", {"order": 7}),
            call("refund", {"order": 7}),
            say("You get 30 EUR back."),
        ]),
    )  # fmt: skip
    assert run.tools == ["find_order", "refund"]
    assert shop.refunded == [7]
    assert run.output == "You get 30 EUR back."


def test_a_model_that_forgets_to_look_is_told_so(agent, shop):
    run = agent.run(
        when("Refund order 7", [
            call("refund", {"order": 7}),  # the model forgets to look up the order
            call("find_order", {"order": 7}),
            call("refund", {"order": 7}),
            say("You get 30 EUR back."),
        ]),
    )  # fmt: skip
    assert "look up the order first" in run.results("refund")[0].text
    assert shop.refunded == [7]


def test_an_order_is_refunded_once(agent, shop):
    run = agent.run(
        when("Refund order 8, twice if you can", [
            call("find_order", {"order": 8}),
            call("refund", {"order": 8}),
            call("refund", {"order": 8}),
            say("Done, once."),
        ]),
    )  # fmt: skip
    assert run.results("refund")[1].text == "order 8 was refunded already"
    assert shop.refunded == [8]


def test_the_recorded_conversation_still_works(offbook, shop):
    agent = offbook.drive(make_agent(), deps=shop, source=offbook.cassette("refund"))
    run = agent.run("Refund order 7")
    assert run.tools == ["find_order", "refund"]
    assert shop.refunded == [7]


def new_shop():
    shop = Shop()
    return drive(make_agent(), deps=shop), shop


def refunds_once_and_looks_first(run, shop):
    assert len(shop.refunded) == len(set(shop.refunded)), f"refunded {shop.refunded}"
    assert shop.seen.issuperset(shop.refunded), f"refunded {shop.refunded}, seen {shop.seen}"


def test_no_model_can_break_the_rules(offbook):
    offbook.explore(new_shop, "Refund order 7", refunds_once_and_looks_first, runs=40)
