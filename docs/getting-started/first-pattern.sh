#!/bin/sh
# A first test of a pattern, from an empty folder: install, write, generate, pass, break, fail.
# OFFBOOK names another package to install, such as a wheel or a checkout.
set -eu

[ -z "$(ls -A)" ] || { echo "run this in an empty folder" >&2; exit 2; }

echo "1. install, unless the command exists"
if ! command -v offbook; then
    python3 -m venv .venv
    .venv/bin/python -m pip install --quiet "${OFFBOOK:-offbook}" pytest
    PATH="$PWD/.venv/bin:$PATH"
fi

echo "2. write a pattern"
cat >counter.py <<'END'
from offbook.patterns import Cell, computed, default, handler, pattern


@handler
def increment(event, value):
    value.set(value.get() + 1)


@pattern
def counter(value: Cell[int] = default(0)):
    return {
        "value": value,
        "double": computed(lambda: value.get() * 2),
        "increment": increment(value=value),
    }
END

echo "3. generate a test, and see it pass"
offbook pattern test counter.py --scaffold
offbook pattern test counter.py

echo "4. break the pattern, and see the test fail"
sed -i.bak 's/value.get() + 1/value.get() + 2/' counter.py
if offbook pattern test counter.py; then
    echo "the test passes for a broken pattern" >&2
    exit 1
fi
mv counter.py.bak counter.py
offbook pattern test counter.py
echo "done: the test passes for the pattern and fails for a broken one"
