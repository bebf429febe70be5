"""Files of version 0.1."""
