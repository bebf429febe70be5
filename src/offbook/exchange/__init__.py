"""Talking to a model, whoever the provider is."""
