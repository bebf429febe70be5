// A JSON value as a tree that opens level by level.

import { button, disclosure, h, visible } from "./dom.ts";
import { compact, isRecord, shorten } from "./events.ts";

const PAGE = 200;
const LONG_TEXT = 400;

export function tree(value: unknown, levels = 2): HTMLElement {
  return h("div", { class: "tree", role: "group", aria: { label: "value" } }, node(value, null, levels));
}

function node(value: unknown, key: string | null, levels: number): HTMLElement {
  const label = key === null ? null : h("span", { class: "key" }, `${visible(key)}: `);
  if (Array.isArray(value) || isRecord(value)) {
    const entries: [string, unknown][] = Array.isArray(value) ? value.map((item, index) => [String(index), item]) : Object.entries(value);
    const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
    if (!entries.length) return h("div", { class: "leaf" }, label, h("span", { class: "faint" }, Array.isArray(value) ? "[]" : "{}"));
    const preview = h("span", { class: "faint" }, `${size} ${shorten(visible(preview_(value)), 80)}`);
    return disclosure([label, preview], (body) => fill(body, entries, 0, levels - 1), levels > 0);
  }
  return h("div", { class: "leaf" }, label, scalar(value));
}

function preview_(value: unknown): string {
  if (Array.isArray(value)) return value.slice(0, 3).map((item) => (typeof item === "object" ? "…" : compact(item))).join(", ");
  return Object.keys(value as object).slice(0, 6).join(", ");
}

function fill(body: HTMLElement, entries: [string, unknown][], start: number, levels: number): void {
  for (const [key, value] of entries.slice(start, start + PAGE)) body.append(node(value, key, levels));
  if (entries.length > start + PAGE) {
    const more = button(`Show ${Math.min(PAGE, entries.length - start - PAGE)} more of ${entries.length}`, () => {
      more.remove();
      fill(body, entries, start + PAGE, 0);
    }, { class: "more" });
    body.append(more);
  }
}

function scalar(value: unknown): HTMLElement {
  if (typeof value !== "string") return h("span", { class: value === null ? "faint" : "number" }, compact(value) || "undefined");
  const text = visible(value);
  if (text.length <= LONG_TEXT) return h("span", { class: "string" }, text.includes("\n") ? text : `"${text}"`);
  const element = h("span", { class: "string" }, `${text.slice(0, LONG_TEXT)}…`);
  const more = button(`Show all ${text.length.toLocaleString("en")} characters`, () => {
    element.textContent = text;
    more.remove();
  }, { class: "more" });
  return h("span", {}, element, more);
}

/** A text as a tree if it is JSON, else null. */
export function parseJson(text: string): unknown {
  const first = text.trimStart()[0];
  if (first !== "{" && first !== "[") return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
