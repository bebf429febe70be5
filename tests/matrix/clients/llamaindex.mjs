// LlamaIndex for Node: its agents, which always stream, or a loop on its model.
import { openai } from "@llamaindex/openai";
import { agent, agentStreamEvent } from "@llamaindex/workflow";
import { tool } from "llamaindex";
import { z } from "zod";
import { description, model, prompt, printResult, variant, weather } from "./harness.mjs";

const llm = openai({ model, maxRetries: 0, supportToolCall: true });
const parameters = z.object({ city: z.string() });
const tools = [tool({ name: "get_weather", description, parameters, execute: weather })];

async function runAgent() {
  let text = "";
  for await (const event of agent({ llm, tools }).runStream(prompt))
    if (agentStreamEvent.include(event)) text += event.data.delta;
  return text;
}

async function loop() {
  const messages = [{ role: "user", content: prompt }];
  for (;;) {
    const { newMessages, toolCalls } = await llm.exec({ messages, tools });
    messages.push(...newMessages);
    if (!toolCalls.length) return messages.at(-1).content;
  }
}

printResult(await (variant === "agent" ? runAgent() : loop()), "llamaindex", "@llamaindex/workflow");
