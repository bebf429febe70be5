"""Where replies come from."""
