"""Tests of the conformance runner."""
