// Ollama's SDK for Node. It reads no variable for its host.
import { Ollama } from "ollama";
import { description, model, prompt, schema, stream, printResult, weather } from "./harness.mjs";

const client = new Ollama({ host: process.env.OLLAMA_HOST });
const tools = [{ type: "function", function: { name: "get_weather", description, parameters: schema } }];
const messages = [{ role: "user", content: prompt }];

async function ask() {
  if (!stream) return (await client.chat({ model, messages, tools })).message;
  const message = { role: "assistant", content: "", tool_calls: [] };
  for await (const part of await client.chat({ model, messages, tools, stream: true })) {
    message.content += part.message.content;
    message.tool_calls.push(...(part.message.tool_calls ?? []));
  }
  return message;
}

for (;;) {
  const message = await ask();
  messages.push(message);
  if (!message.tool_calls?.length) {
    printResult(message.content, "ollama");
    break;
  }
  for (const call of message.tool_calls)
    messages.push({ role: "tool", tool_name: call.function.name, content: weather(call.function.arguments) });
}
