"""Tests of the page, in real Chromium where it is installed."""
