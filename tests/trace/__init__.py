"""Tests of the trace: hub, recorder, reader, redaction and views."""
