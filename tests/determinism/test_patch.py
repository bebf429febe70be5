"""What is put around a function is shared by all who want it, and gone after the last."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from offbook.determinism.network_guard import watch_audit_events
from offbook.determinism.patch import apply_patch


class Speaker:
    def speak(self, word: str) -> str:
        return word


class Child(Speaker):
    pass


def loudly(original: Callable[..., str], *args: Any) -> str:
    return original(*args).upper()


def politely(original: Callable[..., str], *args: Any) -> str:
    return f"please {original(*args)}"


def twice(self: Speaker, word: str) -> str:
    return word * 2


def test_the_last_one_takes_it_away():
    original = Speaker.speak
    first, second = apply_patch(Speaker, "speak", loudly), apply_patch(Speaker, "speak", loudly)
    assert Speaker().speak("hi") == "HI"
    first()
    assert Speaker().speak("hi") == "HI"
    second()
    assert Speaker.speak is original


def test_what_was_inherited_is_inherited_again():
    lift = apply_patch(Child, "speak", loudly)
    assert (Child().speak("hi"), Speaker().speak("hi")) == ("HI", "hi")
    lift()
    assert "speak" not in vars(Child)


def test_a_patch_of_somebody_else_stays():
    class Own(Speaker):
        pass

    lift = apply_patch(Own, "speak", loudly)
    Own.speak = twice
    lift()
    assert Own().speak("hi") == "hihi"


@pytest.mark.parametrize("order, left", [((0, 1), "please hi"), ((1, 0), "HI")])
def test_two_kinds_go_in_any_order(order: tuple[int, int], left: str):
    original = Speaker.speak
    lifts = apply_patch(Speaker, "speak", loudly), apply_patch(Speaker, "speak", politely)
    assert Speaker().speak("hi") == "please HI"
    lifts[order[0]]()
    assert Speaker().speak("hi") == left
    lifts[order[1]]()
    assert Speaker.speak is original


def test_what_is_laid_over_the_patch_of_somebody_else_goes_back_to_theirs():
    class Own(Speaker):
        pass

    inner = apply_patch(Own, "speak", loudly)
    Own.speak = twice
    outer = apply_patch(Own, "speak", loudly)
    assert Own().speak("hi") == "HIHI"
    inner()
    outer()
    assert Own.speak is twice


def test_a_watcher_that_has_stopped_is_not_asked():
    heard: list[str] = []
    stop = watch_audit_events(["offbook.test"], lambda event, _: heard.append(event))
    again = watch_audit_events(["offbook.test"], lambda event, _: heard.append(event))
    sys.audit("offbook.test")
    stop()
    sys.audit("offbook.test")
    again()
    sys.audit("offbook.test")
    sys.audit("offbook.other")
    assert heard == ["offbook.test"] * 3
