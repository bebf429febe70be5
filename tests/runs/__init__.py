"""Rehearsals and commands run with a replaced model."""
