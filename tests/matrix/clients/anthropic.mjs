// Anthropic's own client for Node.
import Anthropic from "@anthropic-ai/sdk";
import { about, model, prompt, schema, stream, tell, weather } from "./told.mjs";

const client = new Anthropic({ maxRetries: 0 });
const messages = [{ role: "user", content: prompt }];
const tools = [{ name: "get_weather", description: about, input_schema: schema }];

for (;;) {
  const options = { model, max_tokens: 100, messages, tools };
  const made = stream
    ? await client.messages.stream(options).finalMessage()
    : await client.messages.create(options);
  const calls = made.content.filter((block) => block.type === "tool_use");
  if (!calls.length) {
    tell(made.content.map((block) => block.text).join(""), "@anthropic-ai/sdk");
    break;
  }
  messages.push({ role: "assistant", content: made.content });
  messages.push({
    role: "user",
    content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: weather(call.input) })),
  });
}
