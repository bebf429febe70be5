"""A trace, told to a person at a terminal."""
