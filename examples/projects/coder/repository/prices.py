"""The prices of a shop."""


def total(a, b):
    return a - b
