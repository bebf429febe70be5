"""Tests of `offbook init` in projects of users."""
