// Vercel's AI SDK, with the models of every provider.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, stepCountIs, streamText, tool } from "ai";
import * as base from "./harness.mjs";

const apiKey = "none";
const models = {
  chat: () => createOpenAI({ baseURL: base.openai, apiKey }).chat(base.model),
  responses: () => createOpenAI({ baseURL: base.openai, apiKey }).responses(base.model),
  compatible: () => createOpenAICompatible({ name: "fake", baseURL: base.openai, apiKey }).chatModel(base.model),
  anthropic: () => createAnthropic({ baseURL: `${base.anthropic}/v1`, apiKey })(base.model),
  google: () => createGoogleGenerativeAI({ baseURL: `${base.google}/v1beta`, apiKey })(base.model),
};
const options = {
  model: models[base.variant](),
  prompt: base.prompt,
  maxRetries: Number(process.env.RETRIES ?? 0),
  stopWhen: (stepCountIs ?? isStepCount)(5),
  tools: {
    get_weather: tool({
      description: base.description,
      inputSchema: jsonSchema(base.schema),
      execute: async (input) => base.weather(input),
    }),
  },
};
const result = base.stream ? streamText(options) : await generateText(options);
base.printResult(await result.text, "ai");
