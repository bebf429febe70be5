"""Subjects: the agents under test, and how they are prompted."""
