"""Tests of eval packs."""
