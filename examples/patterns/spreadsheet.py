"""A spreadsheet: cells with numbers, texts and formulas such as `=A1+B2*2`."""

import ast
import operator
import re
from functools import partial

from offbook.patterns import Cell, computed, default, handler, pattern

NAMES = [f"{column}{row}" for row in range(1, 21) for column in "ABCDEFGH"]
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(node, read):
    """Return the value of a formula; `read` gives the value of a cell by its name."""
    match node:
        case ast.Expression(body):
            return evaluate(body, read)
        case ast.BinOp(left, operation, right):
            return OPERATORS[type(operation)](evaluate(left, read), evaluate(right, read))
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return read(name)
    raise ValueError(f"not a formula: {ast.unparse(node)}")


@handler
def enter(event, sheet):
    if event["at"] not in NAMES:
        raise ValueError(f"no such cell: {event['at']}")
    sheet.key(event["at"]).set(event["text"])


@pattern
def spreadsheet(sheet: Cell[dict] = default({})):
    def compute(name):
        text = sheet.key(name).get() or ""
        if text.startswith("="):
            return evaluate(ast.parse(text[1:], mode="eval"), lambda other: values[other].get())
        return float(text) if re.fullmatch(r"-?[0-9.]+", text) else text or 0

    # One computed value per cell: a change runs only the formulas that depend on it.
    values = {name: computed(partial(compute, name)) for name in NAMES}
    return {
        "sheet": sheet,
        "values": computed(lambda: {name: values[name].get() for name in sheet.get()}),
        "enter": enter(sheet=sheet),
    }
