"""Tests of the agent protocols over HTTP."""
