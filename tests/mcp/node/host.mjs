// A host on the official SDK for TypeScript: host.mjs PROMPT, then the command of a server, or
// nothing for the server at the address in OFFBOOK_MCP_SHOP. Its model decides what it calls.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [prompt, command, ...args] = process.argv.slice(2);
const transport = command
  ? new StdioClientTransport({ command, args })
  : new StreamableHTTPClientTransport(new URL(process.env.OFFBOOK_MCP_SHOP));
const client = new Client({ name: "host", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const offered = tools.map((tool) => ({
  type: "function",
  function: { name: tool.name, description: tool.description, parameters: tool.inputSchema },
}));
const messages = [{ role: "user", content: prompt }];
for (;;) {
  const response = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m", messages, tools: offered }),
  });
  const { message } = (await response.json()).choices[0];
  messages.push(message);
  if (!message.tool_calls?.length) {
    process.stdout.write(message.content);
    break;
  }
  for (const call of message.tool_calls) {
    const given = JSON.parse(call.function.arguments);
    const result = await client.callTool({ name: call.function.name, arguments: given });
    const content = result.content.map((block) => block.text).join("");
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
await client.close();
