"""Runs introduce sources and subjects to each other."""
