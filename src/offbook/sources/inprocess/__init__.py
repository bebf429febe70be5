"""Answers the HTTP clients of this process without a socket."""
