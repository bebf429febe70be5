"""The trace and its verdicts, told to someone."""
