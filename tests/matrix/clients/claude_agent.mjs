// Anthropic's Agent SDK for Node, with the bundled client: its shell tool, or a tool of this process.
import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";
import { z } from "zod";
import { description, model, prompt, printResult, stream, variant, weather } from "./harness.mjs";

const reply = async (input) => ({ content: [{ type: "text", text: weather(input) }] });
const server = createSdkMcpServer({ name: "wx", tools: [tool("get_weather", description, { city: z.string() }, reply)] });
const options = {
  model,
  settingSources: [],
  mcpServers: variant === "mcp" ? { wx: server } : {},
  allowedTools: [variant === "mcp" ? "mcp__wx__get_weather" : "Bash"],
  includePartialMessages: stream,
  env: { ...process.env, ENABLE_TOOL_SEARCH: "false" },
};
let text = "";
for await (const message of query({ prompt, options })) if (message.type === "result") text = message.result;
printResult(text, "@anthropic-ai/claude-agent-sdk");
