"""An MCP server on stdio with the weather tool."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("wx")


@server.tool()
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"21 degrees in {city}"


server.run("stdio")
