// An MCP server on the official SDK for TypeScript, over stdio.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "shop", version: "1" });
server.registerTool(
  "find_order",
  { description: "Find an order.", inputSchema: { number: z.number().int() } },
  async ({ number }) => ({ content: [{ type: "text", text: `order ${number}: one lamp` }] }),
);
await server.connect(new StdioServerTransport());
