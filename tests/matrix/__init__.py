"""The matrix of supported clients: each with its versions, its API and its mode."""
