// Genkit, with its plugins for OpenAI, Google and Anthropic.
import { anthropic } from "@genkit-ai/anthropic";
import { openAI } from "@genkit-ai/compat-oai/openai";
import { googleAI } from "@genkit-ai/google-genai";
import { genkit, z } from "genkit";
import * as base from "./harness.mjs";

const plugins = {
  openai: () => openAI(),
  google: () => googleAI({ apiKey: "none", baseUrl: base.google }),
  anthropic: () => anthropic(),
};
const prefix = base.variant === "google" ? "googleai" : base.variant;
const ai = genkit({ plugins: [plugins[base.variant]()] });
const weather = ai.defineTool(
  { name: "get_weather", description: base.description, inputSchema: z.object({ city: z.string() }) },
  async (input) => base.weather(input),
);
const options = { model: `${prefix}/${base.model}`, prompt: base.prompt, tools: [weather] };
const { text } = base.stream ? await ai.generateStream(options).response : await ai.generate(options);
base.printResult(text, "genkit");
