"""A real, small agent session: a loop, tools, hooks, extensions and a user interface."""
