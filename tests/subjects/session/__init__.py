"""The agent session keeps its promises."""
