// LangChain for Node: its agents, with the models of OpenAI and Anthropic.
import { ChatAnthropic } from "@langchain/anthropic";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import { z } from "zod";
import { description, anthropic, model, prompt, stream, printResult, variant, weather } from "./harness.mjs";

const options = { model, maxRetries: 0, apiKey: "none" };
const models = {
  chat: () => new ChatOpenAI(options),
  responses: () => new ChatOpenAI({ ...options, useResponsesApi: true }),
  anthropic: () => new ChatAnthropic({ ...options, anthropicApiUrl: anthropic }),
};
const agent = createAgent({
  model: models[variant](),
  tools: [tool(weather, { name: "get_weather", description, schema: z.object({ city: z.string() }) })],
});
const input = { messages: [{ role: "user", content: prompt }] };

// With `streaming: true`, it first downloads a token table from the network.
async function streamState() {
  let state;
  for await (const [mode, part] of await agent.stream(input, { streamMode: ["messages", "values"] }))
    if (mode === "values") state = part;
  return state;
}

const state = stream ? await streamState() : await agent.invoke(input);
printResult(state.messages.at(-1).text, "langchain", "@langchain/core");
