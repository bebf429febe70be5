"""Tests of `offbook.exchange`."""
