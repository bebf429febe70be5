"""What is put around a function is shared by all who want it, and gone after the last."""

import sys
from collections.abc import Callable
from typing import Any

from offbook.determinism.audit import watch
from offbook.determinism.patches import lay


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
    first, second = lay(Speaker, "speak", loudly), lay(Speaker, "speak", loudly)
    assert Speaker().speak("hi") == "HI"
    first()
    assert Speaker().speak("hi") == "HI"
    second()
    assert Speaker.speak is original


def test_what_was_inherited_is_inherited_again():
    lift = lay(Child, "speak", loudly)
    assert (Child().speak("hi"), Speaker().speak("hi")) == ("HI", "hi")
    lift()
    assert "speak" not in vars(Child)


def test_a_patch_of_somebody_else_stays():
    class Own(Speaker):
        pass

    lift = lay(Own, "speak", loudly)
    Own.speak = twice
    lift()
    assert Own().speak("hi") == "hihi"


def test_two_kinds_go_in_any_order():
    original = Speaker.speak
    loud, polite = lay(Speaker, "speak", loudly), lay(Speaker, "speak", politely)
    assert Speaker().speak("hi") == "please HI"
    polite()
    loud()
    assert Speaker.speak is original


def test_a_watcher_that_has_stopped_is_not_asked():
    heard: list[str] = []
    stop = watch(["offbook.test"], lambda event, _: heard.append(event))
    again = watch(["offbook.test"], lambda event, _: heard.append(event))
    sys.audit("offbook.test")
    stop()
    sys.audit("offbook.test")
    again()
    sys.audit("offbook.test")
    sys.audit("offbook.other")
    assert heard == ["offbook.test"] * 3
