"""Cassettes: what was asked of a model and what it answered, recorded once, replayed for ever."""
