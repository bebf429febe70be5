// The worker: reads the data, and answers the questions of the page.

import { decodeBase85, gunzip, LineSplitter } from "./lines.ts";
import { chatOf } from "./chat_entries.ts";
import { type Filter, PageStore } from "./store.ts";

export type Question =
  | { ask: "open"; text: string }
  | { ask: "feed"; lines: string[] }
  | { ask: "info" }
  | { ask: "select"; trace: number; filter: Filter }
  | { ask: "rows"; trace: number; start: number; end: number }
  | { ask: "position"; trace: number; index: number }
  | { ask: "find"; trace: number; seq: number }
  | { ask: "script"; trace: number }
  | { ask: "outline"; trace: number }
  | { ask: "event"; trace: number; index: number }
  | { ask: "conversation"; trace: number; index: number }
  | { ask: "moment"; trace: number; index: number }
  | { ask: "changes"; trace: number }
  | { ask: "output"; trace: number; index: number }
  | { ask: "problem"; trace: number; index: number; step: 1 | -1 }
  | { ask: "tracks"; trace: number; columns: number }
  | { ask: "place"; trace: number; index: number }
  | { ask: "nearest"; trace: number; share: number; track: string }
  | { ask: "step"; trace: number; index: number }
  | { ask: "parent"; trace: number; index: number }
  | { ask: "chat"; trace: number };

export const PROGRESS = 0; // the id of messages that answer no question
const FIRST_PROGRESS = 40; // ms
const PAUSE = 300; // ms between two messages about the progress
const TURN = 8; // ms of reading before questions about what is read so far are answered

const store = new PageStore();
const encoder = new TextEncoder();
const splitter = new LineSplitter((line) => store.add(line));
let selected: number[] = [];
let closed: ReadonlySet<number> = new Set();

async function answer(question: Question): Promise<unknown> {
  if (question.ask === "open") {
    let next = performance.now() + FIRST_PROGRESS;
    let turn = performance.now() + TURN;
    for await (const part of gunzip(decodeBase85(question.text))) {
      splitter.add(part);
      if (performance.now() > next) {
        self.postMessage({ id: PROGRESS, value: store.info(true) });
        next = performance.now() + PAUSE;
      }
      if (performance.now() > turn) {
        await otherMessages();
        turn = performance.now() + TURN;
      }
    }
    splitter.end();
    return store.info();
  }
  if (question.ask === "feed") {
    for (const line of question.lines) store.add(encoder.encode(line));
    return store.info();
  }
  if (question.ask === "info") return store.info();
  const trace = store.traces[question.trace];
  if (!trace) return null;
  switch (question.ask) {
    case "select":
      selected = trace.select(question.filter);
      closed = new Set(question.filter.closed);
      return selected.length;
    case "rows": return trace.listed(selected, question.start, question.end, closed);
    case "position": return position(question.index);
    case "script": return trace.script();
    case "outline": return trace.outline();
    case "find": return trace.find(question.seq);
    case "event": return { event: trace.event(question.index), row: trace.rows[question.index], raw: trace.raw(question.index), related: trace.related(question.index) };
    case "conversation": return trace.conversation(question.index);
    case "moment": return trace.moment(question.index);
    case "changes": return trace.changes();
    case "output": return trace.output(question.index);
    case "problem": return trace.nextProblem(question.index, question.step);
    case "tracks": return trace.tracks(question.columns);
    case "place": return trace.rows[question.index] ? trace.span(trace.rows[question.index]!)[0] : -1;
    case "nearest": return trace.nearest(question.share, question.track);
    case "step": return trace.step(question.index);
    case "parent": return trace.parent(question.index);
    case "chat": return chatOf(trace);
  }
}

const { port1, port2 } = new MessageChannel();

/** Let the messages that wait be handled; a timer would wait longer. */
function otherMessages(): Promise<void> {
  return new Promise((resolve) => {
    port1.onmessage = () => resolve();
    port2.postMessage(null);
  });
}

/** The place of an event in the selection, or of the nearest one before it. */
function position(index: number): number {
  let low = 0;
  let high = selected.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (selected[middle]! <= index) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export function startWorker(): void {
  self.onmessage = async ({ data }: MessageEvent<{ id: number; question: Question }>) => {
    try {
      self.postMessage({ id: data.id, value: await answer(data.question) });
    } catch (error) {
      self.postMessage({ id: data.id, error: error instanceof Error ? error.message : String(error) });
    }
  };
}
