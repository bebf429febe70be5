"""Dates and times that are worth a try: those that something names, and what is near them."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from offbook.exchange.schema_values import DATE_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

Part = Literal["", "day", "clock"]
DATE = r"\d{4}-\d{2}-\d{2}"
CLOCK = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?"
ZONE = r"Z|[+-]\d{2}:?\d{2}"
# A date with or without a time, and a time alone.
NAMED = re.compile(
    rf"(?<![\w-]){DATE}(?:[T ]{CLOCK}(?:{ZONE})?)?(?![\w-])|(?<![\w:.]){CLOCK}(?![\w:])",
    re.ASCII,
)
_PARTS = re.compile(rf"({DATE})?([T ]?)({CLOCK})?({ZONE})?", re.ASCII)
_FIRST = re.compile(DATE)
DAYS = (1, -1, 7, 30, 31, 365)
MOST_DAYS = 3700  # a number that is a count of days
CLOCKS = ("00:00:00", "23:59:59", "12:00:00", "08:00:00")
ZONES = ("Z", "+00:00", "-08:00", "+05:30", "+14:00")
HALF_HOURS = (1, 2, -1, -2)
HALF_HOUR = 30  # minutes
LONGEST = 31  # days of a month
HOURS, DECEMBER, CLOCK_DIGITS = 24, 12, 5  # the digits of 08:00


def find_dates(text: str) -> list[str]:
    """Return the dates and times that a text names."""
    return NAMED.findall(text)


def list_near_dates(text: str) -> list[str]:
    """Return a text with other dates in it: the days beside it, the ends of its month and year."""
    if (found := _FIRST.search(text)) is None:
        return []
    year, month = int(found[0][:4]), int(found[0][5:7])
    last = monthrange(year, month)[1] if 0 < month <= DECEMBER and year else 28
    days = [f"{year:04}-{month:02}-{last:02}", f"{year:04}-12-31", "2024-02-29"]
    days += [day for step in (1, -1) if (day := add_days(found[0], step))]
    return [text.replace(found[0], day) for day in days]


def list_impossible_dates(texts: Iterable[Any]) -> list[str]:
    """Return texts that have the form of a date or time in these texts, and are none."""
    found: list[str] = []
    for text in dict.fromkeys(d for t in texts if isinstance(t, str) for d in find_dates(t)):
        day = _FIRST.match(text)
        if day is None:
            found += ["24:00", "12:60"]
            continue
        year, month = int(day[0][:4]), int(day[0][5:7])
        last = monthrange(year, month)[1] if 0 < month <= DECEMBER and year else LONGEST
        days = [f"{year:04}-02-30", f"{year:04}-13-01"]
        days += [f"{year:04}-{month:02}-{last + 1}"] if last < LONGEST else []
        found += [text.replace(day[0], other) for other in days]
    return [*dict.fromkeys(found)]


def move_date(text: str, steps: int) -> str:
    """Return a date or time that is later: by half hours if it has a time, else by days.

    It is "" for another text, and if there is none on the same day.
    """
    written = _split(text)
    if written.clock:
        hour, minute = map(int, written.clock.split(":")[:2])
        moved = 60 * hour + minute + HALF_HOUR * steps
        if not 0 <= moved < HOURS * 60:
            return ""
        rest = written.clock.partition(":")[2][2:]  # the seconds
        clock = f"{moved // 60:02}:{moved % 60:02}{rest}"
        return f"{written.day}{written.between}{clock}{written.zone}"
    return add_days(written.day, steps) if written.day else ""


def add_days(day: str, count: int) -> str:
    """Return the date so many days later; "" if there is none."""
    try:
        return (date.fromisoformat(day) + timedelta(days=count)).isoformat()
    except (ValueError, OverflowError):
        return ""


def choose_date(
    form: str, known: Iterable[Any], numbers: Iterable[Any], random: Random, part: Part = ""
) -> str:
    """Return a date or time near those that are known, in a format or as they are written.

    A number that is known may be a count of days, or an hour. The same time of day in another zone
    is another time. Without a format, it is "" if none is known; `part` is what is wanted then.
    """
    texts = [found for text in known if isinstance(text, str) for found in find_dates(text)]
    written = [_split(text) for text in texts]
    written = _only(part, written) or written
    written = [one for one in written if not form or (one.clock if form == "time" else one.day)]
    if not written and not form:
        return ""
    day, between, clock, zone = random.choice(written or [_split(DATE_FORMATS[form])])
    counts = [int(n) for n in numbers if isinstance(n, (int, float)) and 0 < n <= MOST_DAYS]
    chance = random.random()
    if day and chance < 0.1:  # noqa: PLR2004 - the end of its month or year, or a day beside it
        day = random.choice(list_near_dates(day))
    elif day and chance < 0.6:  # noqa: PLR2004 - else the day itself
        steps = [*DAYS, *(n + step for n in counts for step in (-1, 0, 1))]
        day = add_days(day, random.choice(steps)) or day
    if form == "date":
        return day
    if form:
        usual = _split(DATE_FORMATS[form])
        day, between = (day and usual.day and day), usual.between
        clock, zone = _with_seconds(clock or usual.clock), usual.zone and (zone or usual.zone)
    if clock and not day and random.random() < 0.4:  # noqa: PLR2004 - a time near it
        clock = move_date(clock, random.choice(HALF_HOURS)) or clock
    elif clock and random.random() < 0.3:  # noqa: PLR2004 - another time of the day
        clocks = [*CLOCKS, *(f"{n:02}:00:00" for n in counts if n < HOURS)]
        clock = random.choice(clocks)[: max(len(clock), CLOCK_DIGITS)]
    if zone and random.random() < 0.3:  # noqa: PLR2004 - another zone
        zone = random.choice(ZONES)
    return f"{day}{between}{clock}{zone}"


def _only(part: Part, written: list[Written]) -> list[Written]:
    """Return those with a day, or the times of those that have one."""
    if part == "day":
        return [Written(one.day, "", "", "") for one in written if one.day]
    times = [Written("", "", one.clock, "") for one in written if one.clock]
    return times if part == "clock" else written


class Written(NamedTuple):
    """The parts of a date as a text: the day, what is before the time, the time and the zone."""

    day: str
    between: str
    clock: str
    zone: str


def _with_seconds(clock: str) -> str:
    clock = clock.rjust(CLOCK_DIGITS, "0")
    return f"{clock}:00" if len(clock) == CLOCK_DIGITS else clock


def _split(text: str) -> Written:
    found = _PARTS.fullmatch(text)
    return Written(*(part or "" for part in found.groups())) if found else Written("", "", "", "")
