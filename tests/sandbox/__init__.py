"""Tests of sandbox capabilities."""
