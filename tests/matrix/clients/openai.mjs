// OpenAI's SDK for Node.
import OpenAI from "openai";
import { description, model, prompt, schema, stream, printResult, variant, weather } from "./harness.mjs";

const client = new OpenAI({ maxRetries: 0 });
const tool = { name: "get_weather", description, parameters: schema };

async function chat() {
  const messages = [{ role: "user", content: prompt }];
  for (;;) {
    const options = { model, messages, tools: [{ type: "function", function: tool }] };
    const response = stream
      ? await client.chat.completions.stream(options).finalChatCompletion()
      : await client.chat.completions.create(options);
    const message = response.choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length) return message.content;
    for (const call of message.tool_calls)
      messages.push({ role: "tool", tool_call_id: call.id, content: weather(JSON.parse(call.function.arguments)) });
  }
}

async function responses() {
  const input = [{ role: "user", content: prompt }];
  for (;;) {
    const options = { model, input, tools: [{ type: "function", strict: false, ...tool }] };
    const response = stream
      ? await client.responses.stream(options).finalResponse()
      : await client.responses.create(options);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length) return response.output_text;
    input.push(...response.output);
    for (const call of calls)
      input.push({ type: "function_call_output", call_id: call.call_id, output: weather(JSON.parse(call.arguments)) });
  }
}

printResult(await (variant === "chat" ? chat() : responses()), "openai");
