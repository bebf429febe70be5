// Widgets, a command and a provider: what an extension has besides tools and hooks.
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

const MODEL = {
  id: "own-model",
  name: "Own model",
  reasoning: false,
  input: ["text" as const],
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  contextWindow: 200000,
  maxTokens: 1000,
};

export default function (pi: ExtensionAPI) {
  pi.registerProvider("own-provider", {
    baseUrl: process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:9/v1",
    apiKey: "OPENAI_API_KEY",
    api: "openai-completions",
    models: [MODEL],
  });
  pi.on("session_start", async (_event, ctx) => ctx.ui.setWidget("prices", ["apples 3", "pears 4"]));
  pi.registerCommand("switch", {
    description: "Use the model of this package.",
    handler: async (_args, ctx) => {
      const model = ctx.modelRegistry.find("own-provider", "own-model");
      ctx.ui.notify(`switched: ${await pi.setModel(model!)}`);
    },
  });
}
