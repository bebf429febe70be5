"""`./dev lies`: drive every lying and every honest agent, and print what became of them."""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path

os.environ["SSL_CERT_FILE"] = str(Path(__file__).parents[1] / "authority.pem")  # read in no time
os.environ["PYDANTIC_AI_NO_BANNER"] = "1"
warnings.simplefilter("ignore")

from tests.lies.dialect_lies import LIES
from tests.lies.honest_dialects import HONEST
from tests.lies.verdicts import GROUPS, Lie, Outcome, rehearse, try_lie

WIDTH = 100


def print_table(tried: list[tuple[Lie, Outcome]]) -> None:
    """Print the number of lies by form and group."""
    groups = [*GROUPS, *sorted({outcome.group for _, outcome in tried} - set(GROUPS))]
    counts = Counter((one.form.name, outcome.group) for one, outcome in tried)
    counts.update(("all", outcome.group) for _, outcome in tried)
    forms = [*dict.fromkeys(one.form.name for one, _ in tried), "all"]
    print("form".ljust(14), *(group.rjust(10) for group in [*groups, "lies"]))
    for form in forms:
        numbers = [counts[form, group] for group in groups]
        print(form.ljust(14), *(f"{number:10}" for number in [*numbers, sum(numbers)]))


def print_lies(tried: list[tuple[Lie, Outcome]]) -> None:
    """Print the lies of each group, with a message, the assertion or the reason."""
    for group, meaning in GROUPS.items():
        print(f"\n{group}: {meaning}")
        forms: dict[tuple[str, str], list[str]] = defaultdict(list)
        texts: dict[tuple[str, str], str] = {}
        for one, outcome in tried:
            if outcome.group == group:
                key = one.does, one.expected.text
                forms[key].append(one.form.name)
                texts[key] = one.expected.text or first_line(outcome.message)
        for key, names in forms.items():
            print(f"  {key[0]} ({', '.join(names)})")
            print(f"      {texts[key]}")


def first_line(message: str) -> str:
    line = message.partition("\n")[0]
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def main() -> int:
    """Return 1 if a lie is in another group than its own, or an honest agent is not green."""
    wrong: list[str] = []
    tried: list[tuple[Lie, Outcome]] = []
    skipped = {one.form.missing for one in LIES} - {""}
    for one in LIES:
        if not one.form.missing:
            tried.append((one, outcome := try_lie(one)))
            if outcome.group != one.expected.group:
                wrong.append(f"{one}: expected {one.expected.group}, got {outcome.group}")
    present = [one for one in HONEST if not one.form.missing]
    green = 0
    for one in present:
        outcome = rehearse(one.agent(), one.form)
        passed = outcome.group == ("shown" if one.agent.shows else "green")
        green += passed
        if not passed:
            wrong.append(f"{one}: {first_line(outcome.message)}")
    print_table(tried)
    print(f"\nhonest agents: {green} of {len(present)} green")
    print_lies(tried)
    for line in [*sorted(skipped), *wrong]:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
