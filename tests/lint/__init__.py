"""The lint finds what proves nothing."""
