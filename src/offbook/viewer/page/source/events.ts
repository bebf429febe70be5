// What the page knows of the events of a trace: their kinds, and one line of text for each.

export type Data = { [key: string]: unknown };

export interface TraceEvent {
  ts: number;
  event: string;
  data: Data;
  seq: number;
  id?: string;
  context?: Data;
  parent?: string;
}

export const KINDS = [
  "run", "turn", "model", "tool", "http", "hook", "ui", "host", "step", "hat", "file", "cell",
  "process", "fault", "check", "other",
] as const;
export type Kind = (typeof KINDS)[number];

export const KIND_LABELS: Record<Kind, string> = {
  run: "Runs", turn: "Turns", model: "Model", tool: "Tools", http: "HTTP", hook: "Hooks",
  ui: "People", host: "Host", step: "Steps", hat: "Hats", file: "Files", cell: "Cells",
  process: "Processes", fault: "Faults", check: "Checks", other: "Other",
};

const EXACT: Record<string, Kind> = {
  "_meta.run_start": "run", "_meta.run_end": "run", "_meta.loop_start": "run",
  "_meta.termination": "run", "_meta.iteration": "hat", "_meta.event_dropped": "fault",
  "agent.start": "turn", "agent.end": "turn", "agent.error": "fault", "agent.loop_stuck": "fault",
  "agent.budget_exhausted": "fault", "session.error": "fault", "session.command": "turn",
  "check.verdict": "check", handoff: "step", plan: "step", feedback_injected: "ui",
  "iteration.summary": "hat", "event.orphaned": "fault", "isolation.refused": "fault", "event.malformed": "fault",
};
const PREFIXES: Record<string, Kind> = {
  model: "model", tool: "tool", hook: "hook", ui: "ui", host: "host", step: "step", bus: "hat",
  cell: "cell", harness: "cell", process: "process", ux: "process", fault: "fault", check: "check",
  turn: "turn", agent: "turn", isolation: "fault", cassette: "model", http: "http", person: "ui",
  cli: "host", remote: "host", workspace: "file",
};

export function kindOf(name: string): Kind {
  return EXACT[name] ?? PREFIXES[name.split(".", 1)[0]!] ?? "other";
}

export function isRecord(value: unknown): value is Data {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

export function records(value: unknown): Data[] {
  return list(value).filter(isRecord);
}

export function str(value: unknown): string {
  if (typeof value === "string") return value;
  if (value === undefined || value === null) return "";
  return compact(value);
}

/** JSON on one line. A value of any depth: what cannot be written is named. */
export function compact(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "";
  } catch {
    return "(a value that is nested too deeply)";
  }
}

export function shorten(text: string, limit = 160): string {
  const line = text.slice(0, limit * 4).replace(/\s+/g, " ").trim();
  return line.length > limit || text.length > limit * 4 ? `${line.slice(0, limit - 1)}…` : line;
}

/** The texts of blocks, joined by line ends. */
export function textOf(blocks: unknown): string {
  if (typeof blocks === "string") return blocks;
  return records(blocks)
    .map((block) =>
      block.type === "text" ? str(block.text)
      : block.type === "image" ? "(image)"
      : block.type === "foreign" ? `(${str(block.kind)})`
      : "")
    .filter(Boolean)
    .join("\n");
}

export function callsOf(blocks: unknown): Data[] {
  return records(blocks).filter((block) => block.type === "tool_call");
}

export function describeCall(name: unknown, input: unknown): string {
  const fields = isRecord(input) && Object.keys(input).length === 0 ? "" : shorten(compact(input), 120);
  return `${str(name) || "?"} ${fields}`.trim();
}

export function describeReply(data: Data): string {
  const calls = callsOf(data.blocks);
  const text = textOf(data.blocks);
  const said = text ? `“${shorten(text)}”` : "";
  const called = calls.length === 1 ? `calls ${describeCall(calls[0]!.name, calls[0]!.arguments)}`
    : calls.length ? `calls ${calls.length} tools: ${calls.map((call) => str(call.name)).join(", ")}` : "";
  return [said, called].filter(Boolean).join(" · ") || "an empty reply";
}

export function describeError(data: Data): string {
  const message = str(data.message ?? data.error) || "no message";
  const kind = `${str(data.status)} ${str(data.category)}`.trim();
  return kind ? `${message} (${kind})` : message;
}

/** One line for an event: a bold word, and the rest. It accepts data of any shape. */
export function describe(name: string, data: Data): [string, string] {
  switch (name) {
    case "_meta.run_start": return ["run", `${str(data.subject)}${data.turns === undefined ? "" : ` · ${str(data.turns)} turn${data.turns === 1 ? "" : "s"}`}`];
    case "_meta.run_end": return data.ok ? ["run passed", shorten(str(data.output))] : ["run failed", shorten(str(data.error))];
    case "_meta.loop_start": return ["loop", `at most ${str(data.max_iterations)} iterations`];
    case "_meta.iteration": return [`iteration ${str(data.n ?? data.iteration)}`, str(data.hat)];
    case "_meta.termination": return ["loop ended", `${str(data.reason)}${data.exit_code === undefined ? "" : ` · exit code ${str(data.exit_code)}`}`];
    case "model.request": return ["request", `${str(data.count)} messages, ${list(data.new).length} new`];
    case "model.reply": return ["reply", describeReply(data)];
    case "model.error": return ["model error", shorten(describeError(data))];
    case "model.change": return [data.level === "fails" ? "changed history" : "changed", `${str(data.what)}: ${shorten(str(data.expected))} → ${shorten(str(data.got))}`];
    case "model.aside": return ["side request", shorten(str(data.about ?? data.path))];
    case "model.wire": return ["wire", ["request", "response"].map((side) => `${side} ${str(isRecord(data[side]) ? data[side].size : "?")} bytes`).join(", ")];
    case "tool.call": return [str(data.tool) || "?", shorten(compact(data.input ?? {}), 120)];
    case "tool.start": return [`${str(data.tool)} starts`, shorten(compact(data.input ?? {}), 120)];
    case "tool.end": return [`${str(data.tool)} ends`, data.ran === false ? "it did not run" : `→ ${data.is_error ? "error: " : ""}${shorten(textOf(data.content) || str(data.error)) || "(nothing)"}`];
    case "tool.result": return [str(data.tool) || "?", `→ ${data.is_error ? "error: " : ""}${shorten(textOf(data.content)) || "(nothing)"}`];
    case "tool.blocked": return [`${str(data.tool)} blocked`, shorten(str(data.reason))];
    case "tool.error": return [`${str(data.tool)} raised`, shorten(str(data.error))];
    case "agent.start": return ["user", `“${shorten(str(data.prompt))}”`];
    case "agent.end": return ["turn ended", str(data.stop)];
    case "agent.error": case "session.error": return ["error", shorten(describeError(data))];
    case "session.command": return ["command", `/${str(data.command)} ${shorten(str(data.args))}`];
    case "session.extension": return ["extension", str(data.extension)];
    case "step.pre": return ["step", `${str(data.target)} ${shorten(compact(data.args ?? data.input ?? {}), 100)}`];
    case "step.post": return ["step ended", `${str(data.target)} ${shorten(str(data.error ?? data.output))}`];
    case "host.call": return [`host ${str(data.capability)}.${str(data.operation)}`, "error" in data ? `error: ${shorten(str(data.error))}` : `→ ${shorten(str(data.result))}`];
    case "http.call": return [`${str(data.method)} ${shorten(str(data.url), 100)}`, `→ ${data.error ? `error: ${shorten(str(data.error))}` : str(data.status)}${data.replayed ? " (tape)" : ""}`];
    case "person.asked": return ["asks a person", `${shorten(str(data.question) || describeCall(data.tool, data.input))}${"answer" in data ? ` → ${shorten(str(data.answer), 60)}` : ""}`];
    case "person.said": return ["person", `“${shorten(str(data.text))}”`];
    case "cli.call": return [`program ${str(data.program)}`, `${shorten(list(data.args).map(str).join(" "), 100)} → exit code ${str(data.exit_code)}`];
    case "remote.task": return [`agent ${str(data.agent)}`, `${str(data.state)} → ${shorten(str(data.answer))}`];
    case "cassette.tape": return [data.recorded ? "records a tape" : "replays a tape", `${str(data.file)} (${list(data.tracks).map(str).join(", ")})`];
    case "cassette.fork": return ["fork", `leaves the tape ${str(data.parent)} after interaction ${str(data.step)}`];
    case "handoff": return ["handoff", `${str(data.from)} → ${str(data.to)}`];
    case "bus.publish": return [`publish ${str(data.topic)}`, shorten(str(data.payload))];
    case "workspace.files": return ["files", shorten([...Object.keys(isRecord(data.written) ? data.written : {}), ...list(data.deleted).map((name) => `${str(name)} (deleted)`)].join(", "))];
    case "process.start": return ["process", shorten(list(data.command).map(str).join(" "))];
    case "process.output": return [str(data.stream) || "output", shorten(str(data.text).replace(/\u001b\[[0-9;]*m/g, ""))];
    case "process.exit": return ["process ended", describeExit(data)];
    case "ux.terminal.write": return ["terminal", `${str(data.bytes).length} characters in base64`];
    case "check.verdict": return [`${str(data.status)} ${str(data.check)}`, shorten(str(data.message))];
    case "cell.write": return [`set ${str(data.cell)}`, shorten(compact(data.value))];
    case "cell.compute": return [`compute ${str(data.computed)}`, "error" in data ? `error: ${shorten(str(data.error))}` : shorten(compact(data.value))];
    case "cell.send": case "cell.handle": return [`${name.slice(5)} ${str(data.stream)}`, shorten(compact(data.event))];
  }
  if (name.startsWith("ui.")) {
    const answer = "answer" in data ? ` → ${shorten(compact(data.answer), 60)}` : "";
    return [`ui ${str(data.method) || name.slice(3)}`, `${shorten(list(data.args).map(compact).join(" "), 100)}${answer}`];
  }
  if (name.startsWith("hook.")) return [`hook ${name.slice(5)}`, Object.keys(data).length ? shorten(compact(data)) : ""];
  return [name, Object.keys(data).length ? shorten(compact(data)) : ""];
}

export function describeExit(data: Data): string {
  const parts: string[] = [];
  if (data.timed_out) parts.push("timed out");
  const code = data.exit_code ?? data.code ?? data.returncode;
  if (code !== undefined && code !== null) parts.push(`exit code ${str(code)}`);
  if (data.signal) parts.push(`signal ${str(data.signal)}`);
  return parts.join(" · ") || shorten(compact(data));
}
