from offbook.capability import Capability
from offbook.mcp.scripted_server import ScriptedServer as ScriptedServer
from offbook.mcp.scripted_server import mcp_server as mcp_server
from offbook.mcp.server_session import ToolContext as ToolContext
from offbook.mcp.server_subject import McpServer as McpServer

CAPABILITY: Capability
