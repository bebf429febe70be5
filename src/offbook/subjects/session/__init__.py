"""The built-in agent: a loop with tools, hooks, extensions and a user interface."""

DEFAULT_SYSTEM_PROMPT = "You are an agent. Use the tools that you are given."
