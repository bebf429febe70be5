"""`offbook mcp`: the test tools, for agents."""

from __future__ import annotations

import click

from offbook import cli_options

EXAMPLE = """\b
Example:
  offbook mcp --http --port 8111
  claude mcp add offbook -- offbook mcp

Over HTTP it listens on this machine only, and needs offbook[mcp].
"""


@click.command("mcp", epilog=EXAMPLE)
@click.option("--http", is_flag=True, help="Streamable HTTP instead of stdin and stdout.")
@click.option(
    "--port",
    default=8111,
    show_default=True,
    type=cli_options.PORT_NUMBER,
    help="Where HTTP listens; 0: anywhere.",
)
def command(*, http: bool, port: int) -> None:
    """Serve the test tools to agents, over the Model Context Protocol."""
    if http:
        from offbook.surfaces.mcp_server.http import serve_http

        serve_http(port, lambda url: click.echo(f"serving {url}", err=True))
    else:
        from offbook.surfaces.mcp_server.stdio import serve_stdio

        serve_stdio()
