"""Dates and times that are worth a try: those that something names, and what is near them."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

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
FORMATS = {"date": "2024-02-29", "date-time": "2024-02-29T12:00:00Z", "time": "12:00:00"}
DAYS = (1, -1, 7, 30, 31, 365)
MOST_DAYS = 3700  # a number that is a count of days
CLOCKS = ("00:00:00", "23:59:59", "12:00:00", "08:00:00")
ZONES = ("Z", "+00:00", "-08:00", "+05:30", "+14:00")
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


def add_days(day: str, count: int) -> str:
    """Return the date so many days later; "" if there is none."""
    try:
        return (date.fromisoformat(day) + timedelta(days=count)).isoformat()
    except (ValueError, OverflowError):
        return ""


def choose_date(form: str, known: Iterable[Any], numbers: Iterable[Any], random: Random) -> str:
    """Return a date or time near those that are known, in a format or as they are written.

    A number that is known may be a count of days, or an hour. The same time of day in another zone
    is another time. Without a format, it is "" if none is known.
    """
    texts = [found for text in known if isinstance(text, str) for found in find_dates(text)]
    written = [_split(text) for text in texts]
    written = [one for one in written if not form or (one.clock if form == "time" else one.day)]
    if not written and not form:
        return ""
    day, between, clock, zone = random.choice(written or [_split(FORMATS[form])])
    counts = [int(n) for n in numbers if isinstance(n, (int, float)) and 0 < n <= MOST_DAYS]
    if day and random.random() < 0.6:  # noqa: PLR2004 - else the day itself
        steps = [*DAYS, *(n + step for n in counts for step in (-1, 0, 1))]
        day = add_days(day, random.choice(steps)) or day
    if form == "date":
        return day
    if form:
        usual = _split(FORMATS[form])
        day, between = (day and usual.day and day), usual.between
        clock, zone = _with_seconds(clock or usual.clock), usual.zone and (zone or usual.zone)
    if clock and random.random() < 0.3:  # noqa: PLR2004 - another time of the day
        clocks = [*CLOCKS, *(f"{n:02}:00:00" for n in counts if n < HOURS)]
        clock = random.choice(clocks)[: max(len(clock), CLOCK_DIGITS)]
    if zone and random.random() < 0.3:  # noqa: PLR2004 - another zone
        zone = random.choice(ZONES)
    return f"{day}{between}{clock}{zone}"


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
