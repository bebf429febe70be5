"""Tests of the clock, the guards, patches and thread variables."""
