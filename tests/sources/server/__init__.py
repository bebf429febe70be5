"""A source, served."""
