"""Tests of host capabilities."""
