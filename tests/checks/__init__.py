"""The checks, checked."""
