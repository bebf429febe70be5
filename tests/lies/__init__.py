"""Agents that lie, agents that do not, and what a run says of them."""
