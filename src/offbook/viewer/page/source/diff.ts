// Differences between two texts, by lines and within a line.

import { plain } from "./ansi.ts";
import { h, visible } from "./dom.ts";
import { isRecord } from "./events.ts";

export type Change = { sign: " " | "-" | "+"; text: string };
const MAX_EDITS = 1500;

/** Compare two lists with Myers's algorithm; far too different ones are replaced as a whole. */
export function compareLists(before: readonly string[], after: readonly string[]): Change[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const same = (text: string): Change => ({ sign: " ", text });
  return [
    ...before.slice(0, start).map(same),
    ...middle(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...before.slice(before.length - end).map(same),
  ];
}

function middle(a: readonly string[], b: readonly string[]): Change[] {
  const removed = (text: string): Change => ({ sign: "-", text });
  const added = (text: string): Change => ({ sign: "+", text });
  if (!a.length || !b.length) return [...a.map(removed), ...b.map(added)];
  const limit = Math.min(a.length + b.length, MAX_EDITS);
  const offset = limit + 1;
  let reach = new Int32Array(2 * limit + 3);
  const history: Int32Array[] = [];
  for (let edits = 0; edits <= limit; edits++) {
    history.push(reach.slice());
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && reach[offset + k - 1]! < reach[offset + k + 1]!);
      let x = down ? reach[offset + k + 1]! : reach[offset + k - 1]! + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x++; y++; }
      reach[offset + k] = x;
      if (x >= a.length && y >= b.length) return walkBack(a, b, history, edits, offset);
    }
  }
  return [...a.map(removed), ...b.map(added)];
}

function walkBack(a: readonly string[], b: readonly string[], history: Int32Array[], edits: number, offset: number): Change[] {
  const changes: Change[] = [];
  let x = a.length;
  let y = b.length;
  for (let step = edits; step > 0; step--) {
    const reach = history[step]!;
    const k = x - y;
    const down = k === -step || (k !== step && reach[offset + k - 1]! < reach[offset + k + 1]!);
    const previous = down ? k + 1 : k - 1;
    const px = reach[offset + previous]!;
    const py = px - previous;
    while (x > px && y > py && x > 0 && y > 0 && a[x - 1] === b[y - 1]) { changes.push({ sign: " ", text: a[--x]! }); y--; }
    if (down) changes.push({ sign: "+", text: b[--y]! });
    else changes.push({ sign: "-", text: a[--x]! });
  }
  while (x > 0 && y > 0) { changes.push({ sign: " ", text: a[--x]! }); y--; }
  return changes.reverse();
}

/** Indented JSON with sorted keys, so that the order of fields makes no difference. */
export function pretty(value: unknown): string {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value, (_, part: unknown) => isRecord(part) ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1))) : part, 2) ?? "";
  } catch {
    return "(a value that is nested too deeply)";
  }
}

const CONTEXT = 3;

/** The difference of two texts as a table of lines; equal parts are folded. */
export function diffTexts(before: string, after: string, labels: [string, string] = ["before", "after"]): HTMLElement {
  const changes = compareLists(visible(before).split("\n"), visible(after).split("\n"));
  if (changes.every((change) => change.sign === " ")) return h("p", { class: "faint" }, "No difference.");
  const box = h("div", { class: "diff", role: "group", tabindex: 0, aria: { label: `difference between ${labels[0]} and ${labels[1]}` } }, diffHead(labels));
  for (let i = 0; i < changes.length; i++) {
    const change = changes[i]!;
    if (change.sign === " ") {
      let end = i;
      while (end < changes.length && changes[end]!.sign === " ") end++;
      const hidden = end - i - 2 * CONTEXT;
      if (hidden > 2) {
        for (const kept of changes.slice(i, i === 0 ? 0 : i + CONTEXT)) box.append(lineOf(kept));
        const from = i === 0 ? i : i + CONTEXT;
        const to = end === changes.length ? end : end - CONTEXT;
        const folded = changes.slice(from, to);
        const more = h("button", { type: "button", class: "more", on: { click: () => more.replaceWith(...folded.map((line) => lineOf(line))) } }, `… ${folded.length} equal lines`);
        box.append(more);
        for (const kept of changes.slice(to, end)) box.append(lineOf(kept));
      } else for (const kept of changes.slice(i, end)) box.append(lineOf(kept));
      i = end - 1;
      continue;
    }
    // one removed and one added line: mark the characters
    const next = changes[i + 1];
    const alone = change.sign === "-" && next?.sign === "+" && changes[i + 2]?.sign !== "+" && changes[i - 1]?.sign !== "-";
    if (alone && next) {
      const [first, second] = marked(change.text, next.text);
      box.append(lineOf(change, first), lineOf(next, second));
      i++;
    } else box.append(lineOf(change));
  }
  return box;
}

/** What the signs of a difference mean. */
export function diffHead(labels: [string, string]): HTMLElement {
  return h("div", { class: "diff-head" }, h("span", { class: "del" }, `− ${labels[0]}`), h("span", { class: "ins" }, `+ ${labels[1]}`));
}

function lineOf(change: Change, parts: (Node | string)[] = [change.text]): HTMLElement {
  const tag = change.sign === "-" ? "del" : change.sign === "+" ? "ins" : "span";
  return h(tag, { class: "line" }, h("span", { class: "sign", aria: { hidden: true } }, change.sign === "-" ? "−" : change.sign), ...parts);
}

/** Two similar lines with the characters between their common ends marked. */
export function marked(before: string, after: string): [(Node | string)[], (Node | string)[]] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const cut = (text: string): (Node | string)[] => [text.slice(0, start), h("mark", {}, text.slice(start, text.length - end)), text.slice(text.length - end)];
  return [cut(before), cut(after)];
}

/** Two values side by side, with their difference below. */
export function expectedBesideActual(expected: unknown, actual: unknown): HTMLElement {
  const [left, right] = [pretty(expected), pretty(actual)];
  const single = !left.includes("\n") && !right.includes("\n");
  const [first, second] = single ? marked(visible(left), visible(right)) : [[visible(left)], [visible(right)]];
  return h("div", {},
    h("div", { class: "pair" },
      h("div", {}, h("p", { class: "side-name" }, "− expected"), h("pre", { class: "text expected", tabindex: 0 }, ...first)),
      h("div", {}, h("p", { class: "side-name" }, "+ got"), h("pre", { class: "text actual", tabindex: 0 }, ...second))),
    single ? null : diffTexts(left, right, ["expected", "got"]));
}

/** A message with the lines of a difference marked: a replay mismatch has them. */
export function renderMessageText(text: string): HTMLElement {
  const lines = visible(plain(text)).split("\n");
  if (lines.length < 2) return h("p", { class: "why" }, lines[0]);
  const box = h("div", { class: "diff why", tabindex: 0, role: "group", aria: { label: "message" } });
  const signOf = (line: string) => /^\s*([-+])(?:\s|$)/.exec(line)?.[1] ?? "";
  if (lines.some((line) => signOf(line) === "-") && lines.some((line) => signOf(line) === "+")) box.append(diffHead(["expected", "got"]));
  for (const line of lines) {
    const sign = signOf(line) || (/^\s*expected\b(?! hash).*:/i.test(line) ? "-" : /^\s*(actual|got)\b(?! hash).*:/i.test(line) ? "+" : "");
    box.append(h(sign === "-" ? "del" : sign === "+" ? "ins" : "span", { class: "line" }, line || " "));
  }
  return box;
}
