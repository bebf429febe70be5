"""Serves a source on loopback, in the providers' own words."""
