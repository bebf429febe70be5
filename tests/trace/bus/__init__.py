"""The trace, tested."""
