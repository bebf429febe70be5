"""Mocks: replies written down line by line, for prompts that look like something."""
