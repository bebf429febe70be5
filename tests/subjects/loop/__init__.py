"""The loop of hats, tested."""
