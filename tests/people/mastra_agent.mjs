// A Mastra agent whose tool suspends the run until a person has answered, served over AG-UI.
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

const [port, ledger, asks] = process.argv.slice(2);
const pay = createTool({
  id: "pay",
  description: "Pay.",
  inputSchema: z.object({ amount: z.number() }),
  suspendSchema: z.object({ question: z.string() }),
  resumeSchema: z.object({
    approved: z.boolean(),
    editedArgs: z.object({ amount: z.number() }).optional(),
    reason: z.string().optional(),
  }),
  execute: async (input, { agent } = {}) => {
    const answer = asks ? agent.resumeData : { approved: true };
    if (!answer) return await agent.suspend({ question: `pay ${input.amount}?` });
    if (!answer.approved) return `refused: ${answer.reason ?? ""}`;
    const { amount } = answer.editedArgs ?? input;
    appendFileSync(ledger, `${amount}\n`);
    return `paid ${amount}`;
  },
});
const till = new Agent({
  id: "till",
  name: "till",
  instructions: "You pay.",
  model: { providerId: "fake", modelId: "offbook-1", url: process.env.OPENAI_BASE_URL, apiKey: "none" },
  tools: { pay },
});
new Mastra({ agents: { till }, storage: new InMemoryStore() });
let suspended; // the run of Mastra, and its call

async function* run({ threadId, runId, messages, resume }) {
  const ids = { threadId, runId };
  yield { type: "RUN_STARTED", ...ids };
  const stream = resume
    ? await till.resumeStream(resume[0].payload, suspended)
    : await till.stream(messages.map(({ role, content }) => ({ role, content })));
  let outcome;
  let text = "";
  for await (const { type, payload } of stream.fullStream) {
    if (type === "text-delta") text += payload.text;
    if (type === "error") throw new Error(JSON.stringify(payload));
    if (type === "tool-call" && !resume) {
      const toolCallId = payload.toolCallId;
      yield { type: "TOOL_CALL_START", toolCallId, toolCallName: payload.toolName };
      yield { type: "TOOL_CALL_ARGS", toolCallId, delta: JSON.stringify(payload.args) };
      yield { type: "TOOL_CALL_END", toolCallId };
    }
    if (type === "tool-result") {
      const content = String(payload.result);
      yield { type: "TOOL_CALL_RESULT", messageId: `${runId}-result`, toolCallId: payload.toolCallId, content };
    }
    if (type === "tool-call-suspended") {
      suspended = { runId: stream.runId, toolCallId: payload.toolCallId };
      const message = payload.suspendPayload.question;
      const interrupt = { id: payload.toolCallId, reason: "tool_call", message, toolCallId: payload.toolCallId };
      outcome = { type: "interrupt", interrupts: [interrupt] };
    }
  }
  if (text) {
    const messageId = `${runId}-text`;
    yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
    yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta: text };
    yield { type: "TEXT_MESSAGE_END", messageId };
  }
  yield { type: "RUN_FINISHED", ...ids, ...(outcome ? { outcome } : {}) };
}

createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  if (request.method !== "POST") return response.end();
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
  try {
    for await (const event of run(JSON.parse(body))) send(event);
  } catch (error) {
    send({ type: "RUN_ERROR", message: String(error) });
  }
  response.end();
}).listen(Number(port), "127.0.0.1");
