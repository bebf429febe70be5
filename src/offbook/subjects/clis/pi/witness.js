// The witness: an extension that pi loads twice, before and after the extensions under test.
//
// ROLE is written above this file: "first" or "last". A tool call that the first one sees and the
// last one does not was blocked in between. Every report is awaited until the test has recorded it,
// so the order of events is the same in each run. The module uses nothing of pi but its documented
// extension API: pi.on, pi.registerTool, pi.getAllTools and ctx.ui.
import net from "node:net";

const shared = (globalThis.__offbook ??= { ask: connect(process.env.OFFBOOK_PI_CHANNEL) });

const ANY_OBJECT = { type: "object", properties: {}, additionalProperties: true };
const DIALOGS = ["confirm", "select", "input", "editor"];
// Methods that pi sends to no one in RPC mode, besides those that show something.
const SHOWN = [
  "notify", "setStatus", "setWidget", "setTitle", "setWorkingMessage", "setWorkingVisible",
  "setWorkingIndicator", "setHiddenThinkingLabel", "setFooter", "setHeader", "setEditorText",
  "setEditorComponent", "setTheme", "setToolsExpanded",
];

function connect(path) {
  const socket = net.connect(path);
  const waiting = new Map();
  let count = 0;
  let rest = "";
  // An open socket must not keep pi alive, and a question must.
  const settle = (id) => {
    const question = waiting.get(id);
    waiting.delete(id);
    if (!waiting.size) socket.unref();
    return question;
  };
  const fail = () => {
    for (const id of [...waiting.keys()]) settle(id).reject(new Error("the test has ended"));
  };
  socket.setEncoding("utf8");
  socket.on("error", fail);
  socket.on("close", fail);
  socket.on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const { id, error, value } = JSON.parse(line);
      const question = settle(id);
      if (error === undefined) question?.resolve(value);
      else question?.reject(new Error(error));
    }
  });
  socket.unref();
  return (type, data = {}) =>
    new Promise((resolve, reject) => {
      const id = ++count;
      waiting.set(id, { resolve, reject });
      socket.ref();
      socket.write(`${JSON.stringify({ id, type, ...data })}\n`);
    });
}

function watchUi(ui, hasUi) {
  const report = (method, args) =>
    shared.ask("ui", { method, args: args.map((arg) => arg ?? null) });
  for (const method of SHOWN) {
    const original = ui[method];
    if (typeof original !== "function") continue;
    ui[method] = (...args) => {
      report(method, args).catch(() => {});
      return original.apply(ui, args);
    };
  }
  for (const method of DIALOGS) {
    const original = ui[method];
    ui[method] = async (...args) => {
      // With a user interface, pi's own dialog asks the test. What was shown before comes first.
      if (!hasUi) await report(method, args);
      else await shared.ask("sync");
      return original.apply(ui, args);
    };
  }
  ui.custom = async (...args) => (await report("custom", args)) ?? undefined;
}

function registerMocks(pi, mocks, tools) {
  for (const name of mocks) {
    const tool = tools.find((known) => known.name === name);
    pi.registerTool({
      name,
      label: name,
      description: tool?.description ?? name,
      parameters: tool?.parameters ?? ANY_OBJECT,
      execute: (call, input) => shared.ask("mock", { call, tool: name, input }),
    });
  }
}

function first(pi) {
  shared.first = pi;
  pi.on("session_start", (_event, ctx) => watchUi(ctx.ui, ctx.hasUI));
  pi.on("input", async (event) => {
    await shared.ask("input", { text: event.text });
  });
  pi.on("agent_start", async () => {
    await shared.ask("agent_start");
  });
  pi.on("tool_call", async (event) => {
    await shared.ask("seen", { call: event.toolCallId, tool: event.toolName, input: event.input });
  });
  // A mock may be an error: only a hook can give such a result its content.
  pi.on("tool_result", async (event) => {
    const { toolCallId: call, toolName: tool, isError, content } = event;
    const changed = await shared.ask("ran", { call, tool, is_error: isError, content });
    if (changed) return changed;
  });
}

function last(pi) {
  const reported = new Set();
  const report = async (messages) => {
    const results = messages.filter(
      (message) => message.role === "toolResult" && !reported.has(message.toolCallId),
    );
    for (const result of results) reported.add(result.toolCallId);
    await shared.ask("results", { results });
  };
  pi.on("session_start", async () => {
    const tools = pi.getAllTools();
    const owners = tools.map(({ name, sourceInfo }) => [name, sourceInfo?.path ?? ""]);
    registerMocks(shared.first, await shared.ask("session", { owners }), tools);
  });
  pi.on("tool_call", async (event) => {
    await shared.ask("allowed", {
      call: event.toolCallId,
      tool: event.toolName,
      input: event.input,
    });
  });
  pi.on("context", (event) => report(event.messages));
  pi.on("agent_end", async (event) => {
    await report(event.messages);
    await shared.ask("agent_end");
  });
}

export default ROLE === "first" ? first : last;
