"""Where a model's reply comes from."""
