"""Tests of contracts and budgets."""
