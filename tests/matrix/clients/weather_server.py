"""The weather as a tool of an MCP server, over standard input and output."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("wx")


@server.tool()
def get_weather(city: str) -> str:
    """How the weather is in a city."""
    return f"21 degrees in {city}"


server.run("stdio")
