// Anthropic's SDK for Node.
import Anthropic from "@anthropic-ai/sdk";
import { description, model, prompt, schema, stream, printResult, weather } from "./harness.mjs";

const client = new Anthropic({ maxRetries: 0 });
const messages = [{ role: "user", content: prompt }];
const tools = [{ name: "get_weather", description, input_schema: schema }];

for (;;) {
  const options = { model, max_tokens: 100, messages, tools };
  const response = stream
    ? await client.messages.stream(options).finalMessage()
    : await client.messages.create(options);
  const calls = response.content.filter((block) => block.type === "tool_use");
  if (!calls.length) {
    printResult(response.content.map((block) => block.text).join(""), "@anthropic-ai/sdk");
    break;
  }
  messages.push({ role: "assistant", content: response.content });
  messages.push({
    role: "user",
    content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: weather(call.input) })),
  });
}
