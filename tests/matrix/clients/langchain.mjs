// LangChain for Node: its agents, with the models of OpenAI and Anthropic.
import { ChatAnthropic } from "@langchain/anthropic";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import { z } from "zod";
import { about, anthropic, model, prompt, stream, tell, variant, weather } from "./told.mjs";

const options = { model, maxRetries: 0, apiKey: "none" };
const models = {
  chat: () => new ChatOpenAI(options),
  responses: () => new ChatOpenAI({ ...options, useResponsesApi: true }),
  anthropic: () => new ChatAnthropic({ ...options, anthropicApiUrl: anthropic }),
};
const agent = createAgent({
  model: models[variant](),
  tools: [tool(weather, { name: "get_weather", description: about, schema: z.object({ city: z.string() }) })],
});
const input = { messages: [{ role: "user", content: prompt }] };

// With `streaming: true`, it would fetch a table of tokens from the network before it goes on.
async function last() {
  let state;
  for await (const [mode, part] of await agent.stream(input, { streamMode: ["messages", "values"] }))
    if (mode === "values") state = part;
  return state;
}

const state = stream ? await last() : await agent.invoke(input);
tell(state.messages.at(-1).text, "langchain", "@langchain/core");
