// Mastra: its agents, with its own model router.
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import * as base from "./harness.mjs";

const models = {
  chat: { providerId: "fake", modelId: base.model, url: base.openai, apiKey: "none" },
  anthropic: { providerId: "anthropic", modelId: base.model, url: `${base.anthropic}/v1`, apiKey: "none" },
  google: { providerId: "google", modelId: base.model, url: `${base.google}/v1beta`, apiKey: "none" },
};
const agent = new Agent({
  id: "weather",
  name: "weather",
  instructions: "Answer questions about the weather.",
  model: models[base.variant],
  maxRetries: Number(process.env.RETRIES ?? 0),
  tools: {
    get_weather: createTool({
      id: "get_weather",
      description: base.description,
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => base.weather(input),
    }),
  },
});
const result = base.stream ? await agent.stream(base.prompt) : await agent.generate(base.prompt);
base.printResult(await result.text, "@mastra/core");
