"""Claude Code as the evals run it."""

from offbook import ClaudeCode

coder = ClaudeCode()
