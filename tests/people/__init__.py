"""Tests of the answers of people, in each framework."""
