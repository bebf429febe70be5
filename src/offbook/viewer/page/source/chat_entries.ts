// The run as a conversation: what each side said, in order. Made in the worker.

import { type Data, isRecord, list, records, str, textOf } from "./events.ts";
import type { Status, TraceStore } from "./store.ts";

export interface ChatEntry {
  index: number; // the event
  side: "user" | "agent" | "tool" | "person" | "note";
  who: string;
  blocks: Data[]; // of a message
  title: string; // of a tool, a question or a note
  input?: unknown;
  result?: unknown; // of a tool, or the answer of a person
  status: Status;
}

const QUESTIONS = /^ui\.(confirm|select|input|editor)$/;

export function chatOf(trace: TraceStore): ChatEntry[] {
  const entries: ChatEntry[] = [];
  const calls = new Map<string, ChatEntry>();
  const hasRequests = trace.rows.some((row) => row.name === "model.request");
  for (const { index, name, who, status, text, title } of trace.rows) {
    const add = (side: ChatEntry["side"], more: Partial<ChatEntry>) => {
      const entry: ChatEntry = { index, side, who, blocks: [], title: "", status: "", ...more };
      entries.push(entry);
      return entry;
    };
    const say = (side: "user" | "agent", said: string) => { if (said.trim()) add(side, { blocks: [{ type: "text", text: said }] }); };
    const data = () => trace.data(index);
    switch (name) {
      case "agent.start": if (!hasRequests) say("user", str(data().prompt)); break;
      case "model.request":
        for (const message of records(data().new)) if (message.role === "user") say("user", textOf(message.blocks));
        break;
      case "model.reply": {
        const { blocks, role } = data();
        if (str(role).startsWith("auxiliary")) break;
        const parts = typeof blocks === "string" ? [{ type: "text", text: blocks }] : records(blocks);
        const said = parts.filter((block) => block.type !== "tool_call" && !(block.type === "text" && !str(block.text).trim()));
        if (said.length) add("agent", { blocks: said });
        for (const call of parts.filter((block) => block.type === "tool_call")) {
          calls.set(str(call.id), add("tool", { title: str(call.name), input: call.arguments, status: "warn" })); // until its result is seen
        }
        break;
      }
      case "tool.call": { // of a session: the call is the event to open
        const { call_id, tool, input } = data();
        const known = calls.get(str(call_id));
        if (known) known.index = index;
        else calls.set(str(call_id), add("tool", { title: str(tool), input, status: "warn" }));
        break;
      }
      case "tool.result": case "tool.blocked": {
        const { call_id, content, is_error, reason } = data();
        const entry = calls.get(str(call_id));
        if (!entry || (entry.result !== undefined && name === "tool.blocked")) break;
        entry.result = name === "tool.blocked" ? `blocked: ${str(reason)}` : content;
        entry.status = name === "tool.blocked" ? "warn" : is_error ? "fail" : "ok";
        break;
      }
      case "person.asked": {
        const { question, tool, input, answer } = data();
        add("person", { title: str(question) || `May the agent run ${str(tool)}?`, input: tool ? input : undefined, result: answer, status: answer === undefined ? "fail" : "" });
        break;
      }
      case "process.output": if (!hasRequests && data().stream !== "stderr") say("agent", str(data().text)); break;
      case "_meta.iteration": case "handoff": case "cassette.fork": add("note", { title: `${title} ${text}`.trim() }); break;
      case "model.error": add("note", { title: text || "model error", status: "fail" }); break;
      case "check.verdict": case "_meta.run_end": if (status === "fail") add("note", { title: `${title} ${text}`.trim(), status }); break;
      default:
        if (QUESTIONS.test(name)) {
          const { args, answer } = data();
          add("person", { title: list(args).map((part) => (isRecord(part) ? "" : str(part))).filter(Boolean).join(" ") || title, result: answer });
        }
    }
  }
  return entries;
}
