// LangGraph for Node: a graph of a model and its tools.
import { ChatAnthropic } from "@langchain/anthropic";
import { tool } from "@langchain/core/tools";
import { MessagesAnnotation, StateGraph } from "@langchain/langgraph";
import { ToolNode, toolsCondition } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { description, anthropic, model, prompt, stream, printResult, variant, weather } from "./harness.mjs";

const options = { model, maxRetries: 0, apiKey: "none" };
const models = {
  chat: () => new ChatOpenAI(options),
  responses: () => new ChatOpenAI({ ...options, useResponsesApi: true }),
  anthropic: () => new ChatAnthropic({ ...options, anthropicApiUrl: anthropic }),
};
const tools = [tool(weather, { name: "get_weather", description, schema: z.object({ city: z.string() }) })];
const llm = models[variant]().bindTools(tools);
const graph = new StateGraph(MessagesAnnotation)
  .addNode("model", async ({ messages }) => ({ messages: [await llm.invoke(messages)] }))
  .addNode("tools", new ToolNode(tools))
  .addEdge("__start__", "model")
  .addConditionalEdges("model", toolsCondition)
  .addEdge("tools", "model")
  .compile();
const input = { messages: [{ role: "user", content: prompt }] };

async function streamState() {
  let state;
  for await (const [mode, part] of await graph.stream(input, { streamMode: ["messages", "values"] }))
    if (mode === "values") state = part;
  return state;
}

const state = stream ? await streamState() : await graph.invoke(input);
printResult(state.messages.at(-1).text, "@langchain/langgraph", "@langchain/core");
