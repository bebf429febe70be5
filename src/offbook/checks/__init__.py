"""What must be true of a trace."""
