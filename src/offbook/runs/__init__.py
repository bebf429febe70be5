"""Introduces sources, subjects and checks to one another."""
