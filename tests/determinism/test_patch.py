"""A patch is shared by all its users, and undone by the last; audit handlers can be removed."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from offbook.determinism import apply_patch, watch_audit_events


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


def test_the_last_undo_restores_the_original():
    original = Speaker.speak
    first, second = apply_patch(Speaker, "speak", loudly), apply_patch(Speaker, "speak", loudly)
    assert Speaker().speak("hi") == "HI"
    first()
    assert Speaker().speak("hi") == "HI"
    second()
    assert Speaker.speak is original


def test_an_inherited_method_is_inherited_again():
    undo = apply_patch(Child, "speak", loudly)
    assert (Child().speak("hi"), Speaker().speak("hi")) == ("HI", "hi")
    undo()
    assert "speak" not in vars(Child)


def test_the_patch_of_another_library_stays():
    class Own(Speaker):
        pass

    undo = apply_patch(Own, "speak", loudly)
    Own.speak = twice
    undo()
    assert Own().speak("hi") == "hihi"


@pytest.mark.parametrize("order, left", [((0, 1), "please hi"), ((1, 0), "HI")])
def test_two_wrappers_can_be_undone_in_any_order(order: tuple[int, int], left: str):
    original = Speaker.speak
    undos = apply_patch(Speaker, "speak", loudly), apply_patch(Speaker, "speak", politely)
    assert Speaker().speak("hi") == "please HI"
    undos[order[0]]()
    assert Speaker().speak("hi") == left
    undos[order[1]]()
    assert Speaker.speak is original


def test_a_patch_over_that_of_another_library_restores_theirs():
    class Own(Speaker):
        pass

    inner = apply_patch(Own, "speak", loudly)
    Own.speak = twice
    outer = apply_patch(Own, "speak", loudly)
    assert Own().speak("hi") == "HIHI"
    inner()
    outer()
    assert Own.speak is twice


@pytest.mark.parametrize("owner", [Speaker, Child], ids=["own", "inherited"])
def test_a_function_that_is_patched_again_has_the_same_replacement(owner: type[Speaker]):
    undo = apply_patch(owner, "speak", loudly)
    replacement = owner.speak
    undo()
    undo = apply_patch(owner, "speak", politely)
    assert owner.speak is replacement
    assert owner().speak("hi") == "please hi"
    undo()


def test_a_function_that_another_library_has_set_since_is_patched():
    class Own(Speaker):
        pass

    apply_patch(Own, "speak", loudly)()
    Own.speak = twice
    undo = apply_patch(Own, "speak", loudly)
    assert Own().speak("hi") == "HIHI"
    undo()
    assert Own.speak is twice


def test_a_removed_audit_handler_is_not_called():
    events: list[str] = []
    stop = watch_audit_events(["offbook.test"], lambda event, _: events.append(event))
    again = watch_audit_events(["offbook.test"], lambda event, _: events.append(event))
    sys.audit("offbook.test")
    stop()
    sys.audit("offbook.test")
    again()
    sys.audit("offbook.test")
    sys.audit("offbook.other")
    assert events == ["offbook.test"] * 3
