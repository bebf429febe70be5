"""Who asks: Python, pytest, the command line."""
