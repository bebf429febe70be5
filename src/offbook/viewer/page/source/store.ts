// The events of the page, indexed in the worker. A line stays as bytes; each event has a row with
// what the list shows, and is parsed again when somebody opens it.

import {
  type Data, type Kind, type TraceEvent, callsOf, compact, describe, describeError, describeExit,
  describeReply, isRecord, kindOf, list, records, shorten, str, textOf,
} from "./events.ts";
import { MARK, TRACK_OF, type Track, type TrackMarks, TRACKS } from "./tracks.ts";

export type Status = "" | "ok" | "fail" | "warn";

export interface Row {
  index: number;
  seq: number;
  ts: number; // milliseconds since the first event of the trace
  name: string;
  kind: Kind;
  track: Track;
  depth: number;
  title: string;
  text: string;
  status: Status;
  who: string;
  duration: number; // -1 if unknown
  tokens: number;
  cost: number;
  pair: number; // the event that ends this one, or begins it; -1 if none
  folded: boolean; // shown in the row of its beginning
  fold?: "open" | "closed"; // of a row in the list that has others below it
}

/** How much the list shows: what happened, the usual rows, every event, every byte. */
export type Level = 0 | 1 | 2 | 3;
export const USUAL_LEVEL: Level = 1;

/** A step is a reply of the model: how many there are up to an event, and those around it. */
export interface StepInfo {
  number: number;
  total: number;
  index: number; // its request
  previous: number;
  next: number;
  interaction: number; // its number on the tape
}

/** The tape that a run replays or records. */
export interface Tape {
  file: string;
  tracks: string[];
  command: string[]; // empty: an agent in the process of the test
}

export interface Problem {
  index: number;
  title: string;
  message: string;
  check: string;
  expected?: unknown;
  actual?: unknown;
  context?: Data;
  frames?: Frame[]; // of a test that failed
  explains?: boolean; // a note that may be the reason of a later problem
}

/** A place of the stack, with the lines around it. */
export interface Frame {
  path: string;
  line: number;
  function: string;
  first: number; // the number of the first line
  lines: string[];
  open: boolean; // that of the test
}

/** A prompt of the user, and the blocks of each reply of the model to it. */
export interface ScriptTurn {
  prompt: string;
  replies: Data[][];
}

export type Outcome = "passed" | "failed" | "unfinished" | "no verdict" | "reading";

export interface TraceInfo {
  name: string;
  path: string;
  outcome: Outcome;
  events: number;
  subjects: string[];
  start: number;
  duration: number;
  tokensIn: number;
  tokensOut: number;
  cost: number;
  problems: Problem[];
  notes: Problem[];
  checks: { pass: number; fail: number; warn: number; no_data: number; error: number };
  calls: number;
  replies: number;
  faults: Data[];
  agents: [string, number][];
  kinds: Partial<Record<Kind, number>>;
  counts: Partial<Record<Kind, number>>[]; // the rows of each level
  steps: number;
  tape: Tape | null;
  parameters?: Data;
}

export interface RunInfo {
  name: string;
  summary: Data;
  cases: Data[];
  differences?: unknown; // of the means, from the run before it
}

export interface PageInfo {
  generation: number;
  page: Data;
  traces: TraceInfo[];
  runs: RunInfo[];
  comparison: unknown;
  coverage: unknown;
  extras: Data[];
  bytes: number;
}

export interface Filter {
  kinds: Kind[]; // empty: all
  who: string;
  text: string;
  problems: boolean;
  level: Level;
  closed: number[]; // the rows whose rows below are hidden
  from: number; // a range of the time line, as shares of its width; -1: all
  to: number;
}

export interface Conversation {
  head: Data;
  messages: Data[];
  complete: boolean;
  reply: Data | null;
  before: { index: number; head: Data; messages: Data[] } | null;
}

export interface Moment {
  cells: Data;
  files: { [path: string]: string };
}

const decoder = new TextDecoder();
const MAX_NOTES = 200;
const MAX_PROBLEMS = 1000;

export class TraceStore {
  readonly rows: Row[] = [];
  readonly problems: Problem[] = [];
  readonly notes: Problem[] = [];
  readonly faults: Data[] = [];
  private readonly lines: Uint8Array[] = [];
  private ts = 0;
  private start = 0;
  private last = 0;
  private seq = 0;
  private stack: { end: string; index: number }[] = [];
  private readonly open = new Map<string, number>(); // requests, calls, steps and processes
  private readonly heads = new Map<string, number>();
  private readonly afters = new Map<string, number>(); // a digest: the event that ends with it
  private readonly outcomes = new Map<number, number[]>(); // a call or request: what else belongs to it
  private readonly exchanges = new Map<string, number>(); // the requests
  private readonly agents = new Map<string, number>();
  private readonly kinds: Partial<Record<Kind, number>> = {};
  private readonly writers = new Set<number>(); // the calls of tools that change files
  private readonly steps: { index: number; interaction: number }[] = [];
  private tape: Data | null = null;
  private command: string[] = [];
  private readonly checks = { pass: 0, fail: 0, warn: 0, no_data: 0, error: 0 };
  private readonly subjects = new Set<string>();
  private hat = "";
  private runsOpen = 0;
  private passed = false;
  private tokensIn = 0;
  private tokensOut = 0;
  private cost = 0;
  private calls = 0;
  private replies = 0;

  constructor(readonly record: Data) {
    const test = isRecord(record.test) ? record.test : null;
    if (test?.outcome === "failed") {
      this.problems.push({ index: -1, title: test.phase && test.phase !== "call" ? `The test failed in its ${str(test.phase)}` : "The test failed", message: str(test.message), check: "test", frames: records(test.frames).map(frameOf) });
    }
  }

  add(line: Uint8Array): void {
    this.lines.push(line);
    const event = this.parse(line);
    this.ts += event.ts;
    this.index(event);
  }

  private parse(line: Uint8Array): TraceEvent {
    let fields: unknown[] = [];
    try {
      fields = list(JSON.parse(decoder.decode(line)));
    } catch (error) {
      fields = [0, "unreadable", { error: String(error) }];
    }
    const more = isRecord(fields[3]) ? fields[3] : {};
    return {
      ts: Number(fields[0]) || 0,
      event: str(fields[1]),
      data: isRecord(fields[2]) ? fields[2] : {},
      seq: Number(more.seq ?? 0),
      id: str(more.id) || undefined,
      context: isRecord(more.context) ? more.context : undefined,
      parent: str(more.parent) || undefined,
    };
  }

  event(index: number): TraceEvent | null {
    const line = this.lines[index];
    const row = this.rows[index];
    if (!line || !row) return null;
    return { ...this.parse(line), ts: this.start + row.ts };
  }

  /** The events that belong to one: a request and its reply, a call and all that became of it. */
  related(index: number): TraceEvent[] {
    const row = this.rows[index]!;
    const begin = row.pair >= 0 && row.pair < index ? row.pair : index;
    const end = this.rows[begin]!.pair;
    const found = [begin, ...(this.outcomes.get(begin) ?? []), ...(end > begin ? [end] : [])];
    return found.map((each) => this.event(each)!);
  }

  /** The data of an event. */
  data(index: number): Data {
    const line = this.lines[index];
    return line ? this.parse(line).data : {};
  }

  raw(index: number): string {
    return decoder.decode(this.lines[index] ?? new Uint8Array());
  }

  /** The rows of the list as it is shown first. */
  outline(): Row[] {
    return this.rows.filter((row) => !row.folded);
  }

  private countRows(): Partial<Record<Kind, number>>[] {
    const counts: Partial<Record<Kind, number>>[] = [{}, {}, this.kinds, this.kinds];
    for (const row of this.rows) {
      for (const level of [0, 1] as const) if (isShown(row, level)) counts[level]![row.kind] = (counts[level]![row.kind] ?? 0) + 1;
    }
    return counts;
  }

  /** What the user said and the model replied, for a playbook. */
  script(): ScriptTurn[] {
    const turns: ScriptTurn[] = [];
    for (const row of this.rows) {
      if (row.name === "model.request") {
        const said = records(this.data(row.index).new).filter((message) => message.role === "user").map((message) => textOf(message.blocks)).filter(Boolean);
        if (said.length || !turns.length) turns.push({ prompt: said.at(-1) ?? "", replies: [] });
      } else if (row.name === "model.reply") {
        const { blocks, role } = this.data(row.index);
        if (!str(role).startsWith("auxiliary")) turns.at(-1)?.replies.push(typeof blocks === "string" ? [{ type: "text", text: blocks }] : records(blocks));
      }
    }
    return turns;
  }

  // --- The index

  private index(event: TraceEvent): void {
    const { data, event: name } = event;
    const index = this.rows.length;
    this.seq = event.seq || this.seq + 1;
    if (index === 0) this.start = this.ts;
    if (name !== "check.verdict") this.last = Math.max(this.last, this.ts);
    const kind = kindOf(name);
    const [title, text] = describe(name, data);
    const row: Row = {
      index, seq: this.seq, ts: Math.max(0, this.ts - this.start), name, kind, track: TRACK_OF[kind], depth: 0, title, text, status: "",
      who: "", duration: -1, tokens: 0, cost: 0, pair: -1, folded: false,
    };
    this.rows.push(row);
    if (name === "_meta.iteration") this.hat = str(data.hat);
    if (name === "_meta.termination") this.hat = "";
    const metadata = isRecord(data.metadata) ? data.metadata : {};
    const context = event.context ?? {};
    row.who = str(
      data.hat ?? data.agent ?? metadata.hat ?? (data.persona || undefined) ?? context.agent ?? context.hat ??
      (name === "model.reply" && data.role ? data.role : undefined) ??
      (name === "bus.publish" && data.source ? data.source : undefined) ?? this.hat,
    ).slice(0, 80);
    if (row.who) this.agents.set(row.who, (this.agents.get(row.who) ?? 0) + 1);
    this.kinds[kind] = (this.kinds[kind] ?? 0) + 1;
    const cost = Number(data.cost_usd ?? data.cost_dollars ?? data.total_cost_usd ?? 0);
    if (cost > 0) {
      row.cost = cost;
      this.cost += cost;
    }
    this.place(row, name);
    this.interpret(row, name, data);
  }

  /** Find the depth of a row, from the runs, iterations and turns that are open. */
  private place(row: Row, name: string): void {
    const closes = this.stack.findLastIndex((frame) => frame.end === name);
    if (closes >= 0) {
      const frame = this.stack[closes]!;
      this.stack.length = closes;
      this.join(frame.index, row.index);
    } else if (name === "_meta.iteration" || name === "_meta.termination") {
      const open = this.stack.findLastIndex((frame) => frame.end === "_meta.iteration+");
      if (open >= 0) {
        this.rows[this.stack[open]!.index]!.duration = row.ts - this.rows[this.stack[open]!.index]!.ts;
        this.stack.length = open;
      }
    }
    row.depth = Math.min(this.stack.length, 8);
    const ends: Record<string, string> = {
      "_meta.run_start": "_meta.run_end", "_meta.loop_start": "_meta.termination",
      "agent.start": "agent.end", "_meta.iteration": "_meta.iteration+", "step.pre": "step.post",
    };
    const end = ends[name];
    // one turn within another belongs to a trace without ends: it does not get deeper
    if (end && (name === "step.pre" || !this.stack.some((frame) => frame.end === end))) {
      this.stack.push({ end, index: row.index });
    }
    if (row.kind === "tool" || name === "model.error") row.depth = Math.min(row.depth + (name === "model.error" ? 0 : 1), 9);
  }

  private join(begin: number, end: number): void {
    const first = this.rows[begin]!;
    const last = this.rows[end]!;
    first.pair = end;
    last.pair = begin;
    first.duration = Math.max(0, last.ts - first.ts);
    last.duration = first.duration;
    last.folded = last.name !== "_meta.run_end" && last.name !== "_meta.termination";
  }

  private joinOpen(key: string, row: Row): Row | null {
    const begin = this.open.get(key);
    if (begin === undefined) return null;
    this.open.delete(key);
    this.join(begin, row.index);
    return this.rows[begin]!;
  }

  private interpret(row: Row, name: string, data: Data): void {
    const key = (kind: string, id: unknown) => `${kind} ${str(id)}`;
    switch (name) {
      case "_meta.run_start":
        this.runsOpen++;
        if (data.subject) this.subjects.add(str(data.subject));
        this.command = list(data.command).map(str);
        break;
      case "cassette.tape": this.tape = data; break;
      case "_meta.run_end":
        this.runsOpen = Math.max(0, this.runsOpen - 1);
        row.status = data.ok ? "ok" : "fail";
        this.passed ||= Boolean(data.ok);
        if (!data.ok) {
          this.endOpenRows();
          this.problem(row, "The run failed", str(data.error), "run");
        }
        break;
      case "_meta.loop_start": this.runsOpen++; this.subjects.add("loop"); break;
      case "_meta.termination": {
        this.runsOpen = Math.max(0, this.runsOpen - 1);
        const good = Number(data.exit_code ?? 0) === 0;
        row.status = good ? "ok" : "fail";
        this.passed ||= good;
        if (!good) this.problem(row, `The loop ended: ${str(data.reason)}`, `exit code ${str(data.exit_code)} after ${str(data.iterations)} iterations`, "loop");
        break;
      }
      case "model.request":
        this.open.set(key("x", data.exchange), row.index);
        this.exchanges.set(str(data.exchange), row.index);
        if ("system" in data || "tools" in data) {
          if (!this.heads.has(str(data.head))) this.heads.set(str(data.head), row.index);
        }
        this.afters.set(str(data.after), row.index);
        row.title = "model";
        row.text = `no reply yet to ${str(data.count)} message${data.count === 1 ? "" : "s"}`;
        break;
      case "model.reply": {
        this.replies++;
        if (data.after) this.afters.set(str(data.after), row.index);
        const begin = this.joinOpen(key("x", data.exchange), row);
        const usage = isRecord(data.usage) ? data.usage : {};
        const [tokensIn, tokensOut] = [Number(usage.input ?? 0) || 0, Number(usage.output ?? 0) || 0];
        this.tokensIn += tokensIn;
        this.tokensOut += tokensOut;
        row.tokens = tokensIn + tokensOut;
        if (begin && !str(data.role).startsWith("auxiliary")) {
          // a replay names the interaction; of a recording, they are counted
          const interaction = this.tape && !this.tape.recorded ? Number(data.step) || 0 : 0;
          const later = this.steps.findLastIndex((step) => step.index < begin.index) + 1; // replies may overtake each other
          this.steps.splice(later, 0, { index: begin.index, interaction });
        }
        if (begin) {
          begin.tokens = row.tokens;
          begin.text = describeReply(data);
          if (row.who && !begin.who) begin.who = row.who;
        }
        break;
      }
      case "model.error": {
        row.status = "fail";
        const begin = this.joinOpen(key("x", data.exchange), row);
        if (begin) {
          begin.status = "fail";
          begin.text = `error: ${shorten(describeError(data))}`;
        }
        this.note(row, "The model answered with an error", describeError(data));
        break;
      }
      case "model.wire": {
        const begin = this.exchanges.get(str(data.exchange));
        if (begin === undefined) break;
        row.pair = begin;
        row.folded = true;
        this.outcomes.set(begin, [...(this.outcomes.get(begin) ?? []), row.index]);
        break;
      }
      case "model.change": {
        if (data.level === "allowed") break;
        row.status = data.level === "fails" ? "fail" : "warn";
        this.note(row, `The agent changed: ${row.text}`, "", data.level === "fails");
        break;
      }
      case "tool.call":
        this.calls++;
        this.open.set(key("c", data.call_id), row.index);
        if (changesFiles(data.input)) this.writers.add(row.index);
        break;
      case "tool.blocked": {
        row.status = "warn";
        const call = this.open.get(key("c", data.call_id));
        if (call !== undefined) {
          this.rows[call]!.status = "warn";
          this.rows[call]!.text = `blocked: ${shorten(str(data.reason))}`;
          row.pair = call;
          row.folded = true;
          this.outcomes.set(call, [...(this.outcomes.get(call) ?? []), row.index]);
        }
        this.note(row, `A hook blocked the tool ${str(data.tool)}`, str(data.reason));
        break;
      }
      case "tool.start":
      case "tool.end": {
        const call = this.open.get(key("c", data.call_id));
        if (data.server) {
          row.track = "mcp";
          if (call !== undefined) this.rows[call]!.track = "mcp";
        }
        if (call === undefined) {
          if (name === "tool.start") {
            row.status = "warn";
            this.note(row, `The tool ${str(data.tool)} ran without a call of the model`, row.text, false);
          }
          break;
        }
        row.pair = call;
        // The row of the call says it all, unless the tool ran again or with another input.
        row.folded = Number(data.number ?? 1) === 1 && (name === "tool.end" || row.text === this.rows[call]!.text);
        if (name === "tool.start" && !row.folded) {
          row.status = "warn";
          this.note(row, `The tool ${str(data.tool)} ran ${Number(data.number ?? 1) > 1 ? "again" : "with another input"}`, row.text, false);
        }
        this.outcomes.set(call, [...(this.outcomes.get(call) ?? []), row.index]);
        break;
      }
      case "hook.tool_call":
      case "tool.error": {
        const call = this.open.get(key("c", data.call_id));
        if (call !== undefined) {
          row.pair = call;
          this.outcomes.set(call, [...(this.outcomes.get(call) ?? []), row.index]);
        }
        if (name === "hook.tool_call") break;
        row.status = "fail";
        this.note(row, `The tool ${str(data.tool)} raised an error`, str(data.error));
        break;
      }
      case "tool.result": {
        const begin = this.joinOpen(key("c", data.call_id), row);
        const result = shorten(textOf(data.content)) || "(nothing)";
        if (data.is_error) row.status = "fail";
        if (begin && begin.status !== "warn") {
          begin.text = `${shorten(begin.text, 80)} → ${data.is_error ? "error: " : ""}${result}${data.mocked ? " (mocked)" : ""}`;
          if (data.is_error) begin.status = "fail";
        }
        if (data.is_error && begin?.status !== "warn") this.note(row, `The tool ${str(data.tool)} returned an error`, textOf(data.content));
        if (begin && !data.is_error && begin.status !== "warn") {
          const seen = (this.outcomes.get(begin.index) ?? []).filter((index) => this.rows[index]!.name.startsWith("tool.") && index !== row.index);
          if (!seen.length && this.data(begin.index).observed === true) {
            begin.status = "warn";
            this.note(row, `The tool ${str(data.tool)} did not run`, `the agent sent: ${result}`, false);
          }
        }
        break;
      }
      case "step.post": {
        const begin = row.pair >= 0 ? this.rows[row.pair] : undefined;
        if (data.error !== undefined && data.error !== null && data.error !== "") {
          row.status = "fail";
          if (begin) begin.status = "fail";
          this.note(row, `The step ${str(data.target)} failed`, str(data.error));
        }
        break;
      }
      case "process.start": this.open.set("process", row.index); this.subjects.add("process"); break;
      case "process.exit": {
        const begin = this.joinOpen("process", row);
        row.folded = false;
        const bad = Boolean(data.timed_out) || Number(data.code ?? data.exit_code ?? 0) !== 0;
        row.status = bad ? "fail" : "ok";
        if (begin && bad) begin.status = "fail";
        if (bad) this.note(row, data.timed_out ? "The process timed out" : "The process failed", describeExit(data), !data.timed_out);
        break;
      }
      case "agent.end":
        if (data.stop && data.stop !== "stop") {
          row.folded = false;
          row.status = "warn";
          this.note(row, "The agent stopped early", str(data.stop), false);
        }
        break;
      case "check.verdict": this.verdict(row, data); break;
      default:
        if (row.kind === "fault") {
          row.status = "fail";
          this.note(row, row.title === "error" ? "The agent failed" : name, row.text ? (str(data.error ?? data.message) || row.text) : "");
        }
        if (name.startsWith("cell.")) {
          this.subjects.add("pattern");
          if ("error" in data) row.status = "fail";
        }
    }
  }

  /** A run has failed: the requests and calls that are open stay without an end. */
  private endOpenRows(): void {
    for (const [key, index] of this.open) {
      const row = this.rows[index]!;
      if (row.status) continue;
      if (key.startsWith("x ")) row.text = "no reply: the run ended first";
      else if (key.startsWith("c ")) row.text = `${shorten(row.text, 80)} → no result`;
      else continue;
      row.status = "warn";
    }
  }

  private verdict(row: Row, data: Data): void {
    const status = str(data.status);
    if (status in this.checks) this.checks[status as keyof typeof this.checks]++;
    if (status === "pass") {
      row.status = "ok";
      this.passed = true;
    } else if (status === "warn") {
      row.status = "warn";
      this.note(row, `${str(data.check)} (warning)`, str(data.message), false);
    } else {
      row.status = "fail";
      const title = failureTitle(data);
      if (isRunCheck(data.check)) row.title = title;
      this.problem(row, title, str(data.message), str(data.check), data);
    }
  }

  private problem(row: Row, title: string, message: string, check: string, data: Data = {}): void {
    const problem: Problem = { index: row.index, title, message, check };
    if (data.expected !== undefined && data.expected !== null) problem.expected = data.expected;
    if (data.actual !== undefined && data.actual !== null) problem.actual = data.actual;
    if (isRecord(data.context) && Object.keys(data.context).length) problem.context = data.context;
    if (this.problems.length < MAX_PROBLEMS) this.problems.push(problem);
  }

  private note(row: Row, title: string, message: string, explains = true): void {
    if (this.notes.length < MAX_NOTES) this.notes.push({ index: row.index, title, message, check: "", explains });
  }

  // --- What the page asks for

  /** What the page shows of the whole trace. `trial` is the result of the eval case that it records. */
  info(trial?: Data): TraceInfo {
    const unanswered: Problem[] = [];
    for (const [key, index] of this.open) {
      const row = this.rows[index]!;
      if (key.startsWith("c ") && !this.outcomes.has(index) && unanswered.length < 20) {
        unanswered.push({ index, title: `The call of ${row.title} has no result`, message: str(compact(this.data(index).input)), check: "" });
      }
    }
    const problems = [...trialProblems(trial), ...this.problems];
    let outcome: Outcome = "no verdict";
    if (problems.length) outcome = "failed";
    else if (this.runsOpen > 0) outcome = "unfinished";
    else if (this.passed) outcome = "passed";
    return {
      name: str(this.record.name), path: str(this.record.path), outcome, events: this.rows.length,
      subjects: [...this.subjects], start: this.start, duration: Math.max(0, this.last - this.start),
      tokensIn: this.tokensIn, tokensOut: this.tokensOut, cost: this.cost, problems,
      notes: [...this.notes, ...unanswered], checks: countChecks(this.checks, trial), calls: this.calls,
      replies: this.replies, faults: this.faults, agents: [...this.agents].sort((a, b) => b[1] - a[1]),
      kinds: this.kinds,
      counts: this.countRows(),
      steps: this.steps.length,
      tape: this.tape && { file: str(this.tape.file), tracks: list(this.tape.tracks).map(str), command: this.command },
      parameters: this.record,
    };
  }

  /** Return the indices of the rows that a filter keeps. */
  select(filter: Filter): number[] {
    const kinds = new Set(filter.kinds);
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const kept: number[] = [];
    const shown = new Set<number>();
    // a filter looks into the rows that are closed, too
    const closed = new Set(kinds.size || words.length || filter.who || filter.problems ? [] : filter.closed);
    let hidden = Infinity; // the rows that are deeper
    for (const row of this.rows) {
      const index = row.folded && filter.level < 2 && row.pair >= 0 ? row.pair : row.index;
      if (index !== row.index && !words.length) continue;
      const main = this.rows[index]!;
      if (!isShown(main, filter.level)) continue;
      if (kinds.size && !kinds.has(main.kind)) continue;
      if (filter.who && main.who !== filter.who) continue;
      if (filter.problems && main.status !== "fail" && main.status !== "warn") continue;
      if (filter.from >= 0) {
        const [begin, end] = this.span(main);
        if (end < filter.from || begin > filter.to) continue;
      }
      if (main.depth > hidden) continue;
      hidden = closed.has(main.index) ? main.depth : Infinity;
      if (words.length && !this.contains(row, words)) continue;
      if (!shown.has(index)) kept.push(index);
      if (words.length) shown.add(index);
    }
    return words.length ? kept.sort((a, b) => a - b) : kept;
  }

  private contains(row: Row, words: string[]): boolean {
    const text = decoder.decode(this.lines[row.index]).toLowerCase();
    return words.every((word) => text.includes(word) || row.title.toLowerCase().includes(word));
  }

  /** Return the index of the event with this number of the trace. */
  find(seq: number): number {
    return this.rows[seq - 1]?.seq === seq ? seq - 1 : this.rows.findIndex((row) => row.seq === seq);
  }

  /** Return the next row with a problem, or -1. */
  nextProblem(from: number, step: 1 | -1): number {
    for (let index = from + step; index >= 0 && index < this.rows.length; index += step) {
      const row = this.rows[index]!;
      if (row.status === "fail" && !row.folded) return index;
    }
    return -1;
  }

  /** Return rows with what is below them: whether the next one of the selection is deeper. */
  listed(selected: number[], start: number, end: number, closed: ReadonlySet<number>): Row[] {
    return selected.slice(start, end).map((index, offset) => {
      const row = this.rows[index]!;
      const next = this.rows[selected[start + offset + 1] ?? -1];
      const fold = closed.has(index) ? "closed" : next && next.depth > row.depth ? "open" : undefined;
      return fold ? { ...row, fold } : row;
    });
  }

  /** Return the nearest row above one that is less deep, or -1. */
  parent(index: number): number {
    const depth = this.rows[index]?.depth ?? 0;
    for (let at = index - 1; at >= 0; at--) if (this.rows[at]!.depth < depth && !this.rows[at]!.folded) return at;
    return -1;
  }

  // --- The time line

  /** A run that takes no time, as with a scripted model, has its events in order, evenly. */
  private get byTime(): boolean {
    return this.last - this.start > 5 * this.rows.length;
  }

  /** Where a row begins and ends on the time line, from 0 to 1. */
  span(row: Row): [number, number] {
    if (this.byTime) {
      const span = Math.max(1, this.last - this.start + 1);
      return [Math.min(1, row.ts / span), Math.min(1, (row.ts + Math.max(0, row.duration)) / span)];
    }
    const total = Math.max(1, this.rows.length);
    return [row.index / total, Math.max(row.index, row.pair) / total];
  }

  /** The tracks that have events, in columns. */
  tracks(columns: number): TrackMarks {
    const used = new Map<Track, Uint8Array>();
    const mark = (track: Track, begin: number, end: number, kind: number) => {
      let marks = used.get(track);
      if (!marks) used.set(track, (marks = new Uint8Array(columns)));
      const [first, last] = [begin, end].map((share) => Math.min(columns - 1, Math.floor(share * columns))) as [number, number];
      for (let column = first + 1; column <= last; column++) marks[column] ||= MARK.lasts;
      marks[first] = Math.max(marks[first]!, kind);
    };
    for (const row of this.rows) {
      if (row.folded) continue;
      const [begin, end] = this.span(row);
      mark(row.track, begin, end, row.status === "fail" ? MARK.fails : row.status === "warn" ? MARK.warns : MARK.begins);
      if (this.writers.has(row.index) && row.pair >= 0) mark("files", end, end, MARK.begins);
    }
    const tracks = TRACKS.filter((track) => used.has(track));
    const marks = new Uint8Array(tracks.length * columns);
    tracks.forEach((track, at) => marks.set(used.get(track)!, at * columns));
    return { tracks, marks, byTime: this.byTime };
  }

  /** The row of a track that is nearest to a place of the time line. */
  nearest(share: number, track: string): number {
    let [best, distance] = [-1, Infinity];
    for (const row of this.rows) {
      if (row.folded || (track && row.track !== track && !(track === "files" && this.writers.has(row.index)))) continue;
      const [begin, end] = this.span(row);
      const away = share < begin ? begin - share : share > end ? share - end : (end - begin) / 1e6; // the shortest one around it
      if (away < distance) [best, distance] = [row.index, away];
    }
    return best;
  }

  /** The step that an event belongs to: the last one that has begun. */
  step(index: number): StepInfo {
    const { steps } = this;
    let number = steps.findIndex((step) => step.index > index);
    if (number < 0) number = steps.length;
    const current = steps[number - 1];
    // in the middle of a step, the one before is its own beginning
    const previous = current && current.index < index ? current.index : steps[number - 2]?.index ?? -1;
    return { number, total: steps.length, index: current?.index ?? -1, previous, next: steps[number]?.index ?? -1, interaction: current?.interaction || number };
  }

  // --- Requests, rebuilt from the digests of the trace

  conversation(index: number): Conversation | null {
    const row = this.rows[index];
    if (!row) return null;
    const request = row.name === "model.request" ? index : row.pair;
    if (request < 0 || this.rows[request]?.name !== "model.request") return null;
    const end = this.rows[request]!.pair;
    const whole = this.rebuild(request);
    const earlier = this.previousRequest(request);
    return {
      ...whole,
      reply: end >= 0 ? this.data(end) : null,
      before: earlier < 0 ? null : { index: earlier, ...this.rebuild(earlier) },
    };
  }

  private rebuild(request: number): { head: Data; messages: Data[]; complete: boolean } {
    const data = this.data(request);
    const parts: Data[][] = [];
    let complete = true;
    let at = request;
    for (let hops = 0; hops < 100_000; hops++) {
      const step = this.data(at);
      if (this.rows[at]!.name === "model.reply") {
        parts.push([{ role: "assistant", blocks: step.blocks }]);
        at = this.rows[at]!.pair;
        if (at < 0) { complete = false; break; }
        continue;
      }
      const fresh = records(step.new);
      parts.push(fresh);
      const missing = Number(step.count ?? fresh.length) - fresh.length;
      if (missing <= 0) break;
      const next = this.afters.get(str(step.before));
      if (next === undefined || next >= at) { complete = false; break; }
      at = next;
    }
    const head = this.heads.get(str(data.head));
    const headData = head === undefined ? {} : this.data(head);
    const fields = ["system", "tools", "model", "parameters", "stream"].filter((name) => name in headData);
    return {
      head: Object.fromEntries([...fields.map((name) => [name, headData[name]]), ...(data.metadata ? [["metadata", data.metadata]] : [])]),
      messages: parts.reverse().flat(),
      complete,
    };
  }

  /** The request before, of the same agent where the trace names agents. */
  private previousRequest(request: number): number {
    const who = this.rows[request]!.who;
    for (let index = request - 1; index >= 0; index--) {
      const row = this.rows[index]!;
      if (row.name === "_meta.run_start") return -1;
      if (row.name === "model.request" && row.who === who) return index;
    }
    return -1;
  }

  // --- State: cells, and files that tools wrote

  moment(index: number): Moment {
    const cells: Data = {};
    const files: { [path: string]: string } = {};
    for (const row of this.rows.slice(0, index + 1)) {
      if (row.name === "cell.write" || row.name === "cell.compute") {
        const data = this.data(row.index);
        const name = str(data.cell ?? data.computed);
        if ("value" in data) Object.defineProperty(cells, name, { value: data.value, enumerable: true, configurable: true });
      } else if (row.name === "workspace.files") {
        const data = this.data(row.index);
        for (const [name, text] of Object.entries(isRecord(data.written) ? data.written : {})) {
          Object.defineProperty(files, name, { value: str(text), enumerable: true, configurable: true, writable: true });
        }
        for (const name of list(data.deleted)) delete files[str(name)];
      } else if (row.name === "tool.call" && row.status === "" && row.pair >= 0 && row.pair <= index) {
        if (this.writers.has(row.index)) applyToFiles(files, this.data(row.index).input);
      }
    }
    return { cells, files };
  }

  /** The indices of the events that change the state. */
  changes(): number[] {
    const found: number[] = [];
    for (const row of this.rows) {
      if (row.name === "cell.write" || row.name === "workspace.files") found.push(row.index);
      else if (this.writers.has(row.index) && row.pair >= 0 && row.status === "") found.push(row.pair);
    }
    return found;
  }

  /** What processes and terminals printed, up to an event. */
  output(index: number, limit = 400_000): { stream: string; text: string; index: number }[] {
    const parts: { stream: string; text: string; index: number }[] = [];
    let size = 0;
    for (let at = index; at >= 0 && size < limit; at--) {
      const row = this.rows[at]!;
      if (row.name !== "process.output" && row.name !== "ux.terminal.write") continue;
      const data = this.data(at);
      const text = row.name === "process.output" ? str(data.text) : decodeBytes(str(data.bytes ?? data.data));
      size += text.length;
      parts.push({ stream: row.name === "process.output" ? str(data.stream) : "terminal", text, index: at });
    }
    return parts.reverse();
  }
}

const DETAILS = /^(hook|host|step|ux|check|_meta\.run_start|_meta\.trace|process\.output|cell\.compute|model\.aside|cassette\.tape)\b/;

/** Whether a row is shown on a level. */
function isShown(row: Row, level: Level): boolean {
  if (level >= 2) return true;
  if (row.folded) return false;
  return level === 1 || row.status === "fail" || row.status === "warn" || !(row.kind === "other" || DETAILS.test(row.name));
}

function decodeBytes(text: string): string {
  try {
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    return decoder.decode(bytes);
  } catch {
    return text;
  }
}

function pathOf(input: Data): string {
  return str(input.path ?? input.file_path ?? input.filename);
}

function changesFiles(input: unknown): input is Data {
  return isRecord(input) && pathOf(input) !== "" &&
    ["content", "file_text", "old", "old_string", "old_text", "oldText", "edits"].some((name) => name in input);
}

/** Apply a call of a tool that writes or edits a file. */
function applyToFiles(files: { [path: string]: string }, input: unknown): void {
  if (!changesFiles(input)) return;
  const path = pathOf(input);
  const content = input.content ?? input.file_text;
  let text = Object.hasOwn(files, path) ? files[path]! : "";
  if (typeof content === "string") text = content;
  const edits = [input, ...records(input.edits)];
  for (const edit of edits) {
    const before = edit.old ?? edit.old_string ?? edit.old_text ?? edit.oldText;
    const after = edit.new ?? edit.new_string ?? edit.new_text ?? edit.newText;
    if (typeof before !== "string" || typeof after !== "string") continue;
    // the file was there before the run: only the changed part is known
    const at = text.indexOf(before);
    text = at < 0 ? `${text}${text ? "\n" : ""}${after}` : text.slice(0, at) + after + text.slice(at + before.length);
  }
  Object.defineProperty(files, path, { value: text, enumerable: true, configurable: true, writable: true });
}

/** Whether two paths name one file: one may be relative to a folder of the other. */
export function isSameFile(one: string, other: string): boolean {
  return one !== "" && (one === other || one.endsWith(`/${other}`) || other.endsWith(`/${one}`));
}

function frameOf(value: Data): Frame {
  return { path: str(value.path), line: Number(value.line), function: str(value.function), first: Number(value.first), lines: list(value.lines).map(str), open: value.open === true };
}

/** Whether a check is about the run itself: its name says less than what ended the run. */
function isRunCheck(check: unknown): boolean {
  return check === "playbook consumed" || check === "run finished";
}

/** What failed, in the words of a person who does not know the name of the check. */
function failureTitle(data: Data): string {
  const message = str(data.message);
  if (message.startsWith("Replay mismatch")) return "The request is not the one that was recorded";
  if (/^DeadlineExceeded\b/.test(message)) return "Timeout: the agent did not end in time";
  if (data.check === "playbook consumed") return "The run did not follow its script";
  if (data.check === "run finished") return message.startsWith("AssertionError") ? "An assertion of the script failed" : "An error ended the run";
  const words: Record<string, string> = { fail: "failed", no_data: "had no data", error: "ended with an error" };
  return `The check “${str(data.check)}” ${words[str(data.status)] ?? str(data.status)}`;
}

/** The checks of a trace, with those of its eval case. */
function countChecks(own: TraceInfo["checks"], trial: Data | undefined): TraceInfo["checks"] {
  const counts = { ...own };
  for (const { status } of records(trial?.verdicts)) if (str(status) in counts) counts[str(status) as keyof typeof counts]++;
  return counts;
}

/** Why the eval case of a trace failed. Its checks run after the trace has ended. */
function trialProblems(trial: Data | undefined): Problem[] {
  if (!trial || trial.status === "pass") return [];
  const failed = records(trial.verdicts).filter((verdict) => verdict.status !== "pass" && verdict.status !== "warn");
  const problems = failed.map((verdict) => ({
    index: -1, title: failureTitle(verdict), message: str(verdict.message), check: str(verdict.check),
    ...Object.fromEntries(["expected", "actual"].filter((name) => verdict[name] !== undefined && verdict[name] !== null).map((name) => [name, verdict[name]])),
    ...(isRecord(verdict.context) && Object.keys(verdict.context).length ? { context: verdict.context } : {}),
  }));
  return problems.length ? problems : [{ index: -1, title: "The eval case failed", message: str(trial.error) || str(trial.status), check: "case" }];
}

/** All traces and runs of the page. */
export class PageStore {
  page: Data = {};
  generation = 0; // how often a server has replaced everything
  traces: TraceStore[] = [];
  runs: RunInfo[] = [];
  readonly extras: Data[] = []; // records of the server: reviews
  comparison: unknown = null;
  coverage: unknown = null; // of the agent, by all traces
  bytes = 0;
  private current: TraceStore | null = null; // that the next events belong to

  add(line: Uint8Array): void {
    if (!line.length) return;
    this.bytes += line.length;
    if (line[0] === 91 /* [ */) {
      (this.current ??= this.begin({ name: "trace" })).add(line);
      return;
    }
    const record: unknown = JSON.parse(decoder.decode(line));
    if (!isRecord(record)) return;
    if (isRecord(record.page)) this.page = record.page;
    else if (isRecord(record.trace)) this.current = this.begin(record.trace);
    else if (typeof record.continue === "number") this.current = this.traces[record.continue] ?? this.current;
    else if (record.faults !== undefined) this.current?.faults.push(...records(record.faults));
    else if (isRecord(record.run)) this.runs.push({ name: str(record.run.name), summary: record.run, cases: [] });
    else if (isRecord(record.case)) this.runs.at(-1)?.cases.push(record.case);
    else if (isRecord(record.differences) && this.runs.length) this.runs.at(-1)!.differences = record.differences;
    else if (isRecord(record.summary) && this.runs.length) this.runs.at(-1)!.summary = record.summary;
    else if (record.comparison !== undefined) this.comparison = record.comparison;
    else if (record.coverage !== undefined) this.coverage = record.coverage;
    else if (record.clear !== undefined) this.clear();
    else this.extras.push(record);
  }

  private clear(): void {
    this.generation++;
    this.traces = [];
    this.runs = [];
    this.current = this.comparison = this.coverage = null;
    this.bytes = 0;
  }

  private begin(about: Data): TraceStore {
    const trace = new TraceStore(about);
    this.traces.push(trace);
    return trace;
  }

  /** What the page shows of everything. While data are read, the last trace has no outcome yet. */
  info(reading = false): PageInfo {
    const trials = new Map<string, Data[]>(); // by the name of the file
    for (const trial of this.runs.flatMap((run) => run.cases)) {
      const name = str(trial.trace).split("/").at(-1)!;
      trials.set(name, [...(trials.get(name) ?? []), trial]);
    }
    const trialOf = ({ record }: TraceStore) => trials.get(str(record.path).split("/").at(-1)!)?.find((trial) => isSameFile(str(trial.trace), str(record.path)));
    return {
      generation: this.generation, page: this.page, traces: this.traces.map((trace) => {
        const info = trace.info(trialOf(trace));
        const open = reading && trace === this.current && (info.outcome === "unfinished" || info.outcome === "no verdict");
        return open ? { ...info, outcome: "reading" as const } : info;
      }),
      runs: this.runs,
      comparison: this.comparison, coverage: this.coverage, extras: this.extras, bytes: this.bytes,
    };
  }
}

export { callsOf, compact };
