// OpenAI's Agents SDK for Node.
import { Agent, OpenAIProvider, Runner, tool } from "@openai/agents";
import { z } from "zod";
import { description, model, prompt, stream, printResult, variant, weather } from "./harness.mjs";

const agent = new Agent({
  name: "weather",
  model,
  tools: [tool({ name: "get_weather", description, parameters: z.object({ city: z.string() }), execute: weather })],
});
const runner = new Runner({ modelProvider: new OpenAIProvider({ useResponses: variant === "responses" }) });
const result = await runner.run(agent, prompt, { stream });
if (stream) await result.completed;
printResult(result.finalOutput, "@openai/agents");
