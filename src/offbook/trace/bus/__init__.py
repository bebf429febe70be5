"""The moving parts of the hub: who hears what, in which order, and what waits."""
