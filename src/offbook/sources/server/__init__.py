"""Serves a source on the loopback interface, in the wire formats of the providers."""
