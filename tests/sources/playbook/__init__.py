"""Playbooks: what the model does, scripted."""
