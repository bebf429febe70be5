"""Who asks: the command line."""
