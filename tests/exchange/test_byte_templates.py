"""A template filled with a name is what would have been written with that name."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.dialects.streaming import PLACEHOLDER, ByteTemplate, FilledTemplate

names = st.binary(min_size=1, max_size=9).filter(lambda name: PLACEHOLDER not in name)
pieces = st.lists(
    st.lists(st.binary(max_size=5).map(lambda b: b.replace(PLACEHOLDER, b"x")), min_size=1)
)


def measure(given: Sequence[bytes]) -> bytes:
    """Each piece behind its length, so that a wrong one shows."""
    return b"".join(b"%d:%b" % (len(piece), piece) for piece in given)


@given(pieces, st.lists(names, min_size=1, max_size=4))
def test_it_holds_the_name_wherever_there_was_a_hole(parts: list[list[bytes]], given: list[bytes]):
    template = ByteTemplate(PLACEHOLDER.join(piece) for piece in parts)
    for name in given:
        expected = tuple(name.join(piece) for piece in parts)
        filled = FilledTemplate(template, name)
        assert tuple(filled) == expected
        assert filled == expected
        assert hash(filled) == hash(expected)
        assert filled[1:] == expected[1:]
        assert [filled[at] for at in range(len(filled))] == list(expected)
        assert filled.join(measure) == measure(expected)


def test_what_is_joined_once_is_joined_for_all_names_of_that_length():
    asked: list[int] = []

    def join(given: Sequence[bytes]) -> bytes:
        asked.append(len(given))
        return b"".join(given)

    template = ByteTemplate((b"a\0b", b"\0"))
    assert [FilledTemplate(template, name).join(join) for name in (b"1", b"2", b"33")] == [
        b"a1b1",
        b"a2b2",
        b"a33b33",
    ]
    assert asked == [2, 2]
