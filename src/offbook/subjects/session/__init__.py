"""The built-in agent: a loop with tools, hooks, extensions and a user interface."""
