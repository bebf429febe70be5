"""An MCP server on the official SDK, over stdio: a tool that asks, a resource and a prompt."""

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

server = MCPServer("shop")


class Account(BaseModel):
    account: str


@server.tool()
async def pay(ctx: Context) -> str:
    """Pay, from an account that the person names."""
    await ctx.report_progress(1, 2, "asking")
    answer = await ctx.elicit("Which account?", Account)
    return f"paid from {answer.data.account}" if answer.action == "accept" else "not paid"


@server.resource("shop://terms")
def terms() -> str:
    """The terms."""
    return "30 days"


@server.prompt()
def greet(name: str) -> str:
    """Greet a person."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    server.run()
