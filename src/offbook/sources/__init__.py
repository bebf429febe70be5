"""Sources: they answer the requests to the model."""
