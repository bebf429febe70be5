"""The trace: events of a run, recorded, read, redacted and queried. All stages share it."""
