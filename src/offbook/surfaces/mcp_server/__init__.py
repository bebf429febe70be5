"""The test tools for agents, over the Model Context Protocol."""
