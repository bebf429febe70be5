"""Golden fixtures: scenarios recorded once from the real thing, replayed for ever."""
