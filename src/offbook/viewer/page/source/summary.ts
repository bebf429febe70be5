// The summary of a trace: the verdict and the reasons first.

import { plain } from "./ansi.ts";
import { breakable, button, count, disclosure, duration, h, money, visible } from "./dom.ts";
import { expectedBesideActual, renderMessageText } from "./diff.ts";
import { str } from "./events.ts";
import { colouredLines } from "./python.ts";
import type { Frame, Outcome, Problem, TraceInfo } from "./store.ts";
import { tree } from "./tree.ts";

const SHOWN = 30; // problems and notes; the list has all
export const OUTCOME_MARKS: Record<Outcome, string> = { passed: "✓", failed: "✗", unfinished: "…", "no verdict": "?", reading: "…" };

export function outcomeBadge(outcome: Outcome): HTMLElement {
  return h("span", { class: `outcome ${outcome.replace(" ", "-")}` }, h("span", { aria: { hidden: true } }, `${OUTCOME_MARKS[outcome]} `), outcome);
}

/** The problems once each: the end of a run repeats the message of the check that failed. */
export function distinctProblems(info: TraceInfo): Problem[] {
  const seen = new Set<string>();
  const order = [...info.problems.filter((problem) => problem.check !== "run" && problem.check !== "loop"), ...info.problems.filter((problem) => problem.check === "run" || problem.check === "loop")];
  return order.filter((problem) => {
    const key = problem.message.trim().replace(/^(?:\w+\.)*[A-Z]\w+: /, ""); // without the class of the error
    if (key && [...seen].some((other) => other.startsWith(key))) return false; // a check has the first line
    seen.add(key);
    return true;
  });
}

/** The first line of the reason why a trace failed. */
export function reason(info: TraceInfo): string {
  const problem = distinctProblems(info)[0];
  if (problem) {
    const before = eventBefore(info, problem);
    const expected = isScalar(problem.expected) ? ` (expected ${str(problem.expected)})` : "";
    return `${firstLine(problem.message || problem.title)}${changedLine(problem.message)}${expected}${before ? ` — before it: ${noteText(before)}` : ""}`;
  }
  if (info.outcome === "unfinished") return "the trace ends before the end of the run: it was killed, or it still runs";
  if (info.outcome === "reading") return "the rest of the trace is being read";
  if (info.outcome === "no verdict") return info.events ? "nothing was checked and no run ended" : "the trace has no events";
  return "";
}

function firstLine(text: string): string {
  return plain(text).split("\n", 1)[0] ?? "";
}

/** The first line of a difference in a message: a replay mismatch has one. */
function changedLine(message: string): string {
  const [, expected, got] = /^- (.+)\n\+ (.+)$/m.exec(plain(message)) ?? [];
  return expected && got ? `: expected “${expected.trim()}”, got “${got.trim()}”` : "";
}

function isScalar(value: unknown): boolean {
  return typeof value === "number" || (typeof value === "string" && value !== "" && value.length < 40);
}

/** The last event before a problem that may explain it: a tool that was blocked, a model error. */
function eventBefore(info: TraceInfo, problem: Problem): Problem | undefined {
  return problem.index < 0 ? undefined : info.notes.findLast((note) => note.explains && note.index < problem.index);
}

function noteText(note: Problem): string {
  return visible(note.message ? `${note.title}: ${firstLine(note.message).slice(0, 300)}` : note.title);
}

export function renderSummary(info: TraceInfo, open: (index: number) => void): HTMLElement {
  const problems = distinctProblems(info);
  const box = h("div", { class: "summary" });
  box.append(h("h2", {}, outcomeBadge(info.outcome), " ", ...breakable(visible(info.name))));
  const facts: [string, string][] = [
    ["subject", info.subjects.join(", ")], ["events", info.events.toLocaleString("en")], ["duration", duration(info.duration)],
    ["model calls", String(info.replies)], ["tool calls", String(info.calls)],
    ["tokens", info.tokensIn + info.tokensOut ? `${info.tokensIn.toLocaleString("en")} in, ${info.tokensOut.toLocaleString("en")} out` : ""],
    ["cost", money(info.cost)],
    ["checks", Object.entries(info.checks).filter(([, number]) => number).map(([name, number]) => `${number} ${name.replace("_", " ")}`).join(", ")],
    ["started", info.start > 1e11 ? new Date(info.start).toISOString().replace("T", " ").slice(0, 19) : ""], ["file", info.path],
  ];
  if (problems.length) {
    box.append(h("h3", {}, problems.length === 1 ? "Why it failed" : `Why it failed (${problems.length} reasons)`));
    for (const problem of problems.slice(0, SHOWN)) box.append(renderProblem(problem, eventBefore(info, problem), open));
    if (problems.length > SHOWN) box.append(h("p", {}, `… and ${problems.length - SHOWN} more: press n to walk through them.`));
  } else if (info.outcome !== "passed") box.append(h("p", { class: "remark" }, `${reason(info)}.`));
  const shown = new Set(problems.map((problem) => eventBefore(info, problem)));
  const notes = info.notes.filter((note) => !shown.has(note));
  if (notes.length) {
    box.append(disclosure([h("b", {}, info.outcome === "passed" ? "Noted" : "Also noted"), ` ${count(notes.length, "event")}${info.outcome === "passed" ? "" : " that may explain it"}`], (body) => {
      for (const note of notes.slice(0, SHOWN)) body.append(renderNote(note, open));
      if (notes.length > SHOWN) body.append(h("p", {}, `… and ${notes.length - SHOWN} more: press f to list all events with a problem.`));
    }, info.outcome !== "passed" || notes.length < 10, "item"));
  }
  box.append(h("dl", { class: "facts-list" }, ...facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, visible(value))))));
  if (info.faults.length) {
    box.append(disclosure([h("b", {}, count(info.faults.length, "damaged line"))], (body) => body.append(...info.faults.map((fault) => h("p", {}, visible(`line ${str(fault.line)}: ${str(fault.reason)} ${str(fault.text)}`)))), true, "item"));
  }
  box.append(h("p", { class: "faint keys-hint" }, "Keys: ↓ ↑ walk through the events, n the next problem, / search, ? all keys."));
  return box;
}

function renderNote(note: Problem, open: (index: number) => void, ...before: string[]): HTMLElement {
  return h("div", { class: "note" }, ...before, button(`event ${note.index + 1}`, () => open(note.index), { class: "link" }), ` ${noteText(note)}`);
}

export function placeOf(frame: Frame): string {
  return `${frame.path}:${frame.line}${frame.function && ` in ${frame.function}`}`;
}

/** A frame of the stack: it opens to its lines, of which its own is marked. */
function renderFrame(frame: Frame): HTMLElement {
  const code = (frame.lines[frame.line - frame.first] ?? "").trim();
  return disclosure([visible(placeOf(frame)), " ", h("code", {}, visible(code))], (body) => {
    const box = h("pre", { class: "source text", tabindex: 0, aria: { label: visible(`lines of ${frame.path}`) } });
    colouredLines(frame.lines.map(visible)).forEach((line, offset) => {
      const number = frame.first + offset;
      const at = number === frame.line;
      box.append(h("span", { class: at ? "line at" : "line" }, `${at ? ">" : " "} ${String(number).padStart(4)}  `, ...line));
    });
    body.append(box);
  }, frame.open, "frame");
}

function renderProblem(problem: Problem, before: Problem | undefined, open: (index: number) => void): HTMLElement {
  const box = h("section", { class: "problem" }, h("h4", {}, "✗ ", visible(problem.title), " ", problem.index < 0 ? null : button(`event ${problem.index + 1}`, () => open(problem.index), { class: "link" })));
  if (problem.message) box.append(renderMessageText(problem.message));
  if (problem.frames) box.append(...problem.frames.map(renderFrame));
  if (problem.expected !== undefined || problem.actual !== undefined) box.append(expectedBesideActual(problem.expected ?? null, problem.actual ?? null));
  if (before) box.append(renderNote(before, open, "Before it: "));
  if (problem.context) box.append(disclosure(["context"], (body) => body.append(tree(problem.context))));
  return box;
}
