"""The pytest plugin, run in pytests of its own."""
