// The run as a chat: the user on the right, the agent on the left, each tool call folded.

import type { ChatEntry } from "./chat_entries.ts";
import { renderBlock, renderContent } from "./conversation.ts";
import { button, count, disclosure, h, visible } from "./dom.ts";
import { compact, shorten, str, textOf } from "./events.ts";
import { MARKS } from "./list.ts";
import { tree } from "./tree.ts";

const SHOWN = 200; // entries at once

export function renderChat(entries: ChatEntry[], open: (index: number) => void): HTMLElement {
  const named = new Set(entries.map((entry) => entry.who)).size > 1;
  const box = h("div", { class: "chat", id: "chat", tabindex: -1 });
  const add = (start: number) => {
    box.append(...entries.slice(start, start + SHOWN).map((entry) => renderEntry(entry, named, open)));
    const rest = entries.length - start - SHOWN;
    if (rest <= 0) return;
    const more = button(`Show ${count(Math.min(SHOWN, rest), "more message")} of ${rest.toLocaleString("en")}`, () => { more.remove(); add(start + SHOWN); }, { class: "more" });
    box.append(more);
  };
  add(0);
  if (!entries.length) box.append(h("p", { class: "remark" }, "Nobody said anything in this trace."));
  return box;
}

function renderEntry(entry: ChatEntry, named: boolean, open: (index: number) => void): HTMLElement {
  const { side, status, title } = entry;
  const link = button(`event ${entry.index + 1}`, () => open(entry.index), { class: "link at" });
  if (side === "note") return h("p", { class: `chat-note ${status}` }, status ? `${MARKS[status]} ` : "", visible(title), " ", link);
  if (side === "tool" || side === "person") return renderCall(entry, link);
  const who = named && entry.who ? visible(entry.who) : side === "user" ? "user" : "model";
  return h("div", { class: `bubble ${side}`, role: "group", aria: { label: `${side} message` } }, h("p", { class: "role" }, who, " ", link), ...entry.blocks.map(renderBlock));
}

/** A tool call, or a question to a person, on one line; its values are folded unless it failed. */
function renderCall({ side, title, input, result, status }: ChatEntry, link: HTMLElement): HTMLElement {
  const answer = result === undefined ? (side === "tool" ? "no result" : "no answer") : shorten(typeof result === "string" ? result : textOf(result) || (Array.isArray(result) ? "" : compact(result)), 100) || "(nothing)";
  const given = input === undefined ? "" : ` ${shorten(compact(input), 100)}`;
  const line = [h("b", {}, side === "person" ? "asks: " : "", visible(title)), visible(given), h("span", { class: "faint" }, visible(` → ${answer}`))];
  const mark = status ? h("span", { class: `mark ${status}` }, `${MARKS[status]} `) : null;
  return h("div", { class: `chat-call ${side} ${status}` }, disclosure([mark, ...line], (body) => {
    if (input !== undefined) body.append(h("p", { class: "part" }, "Arguments"), tree(input, 4));
    if (result !== undefined) body.append(h("p", { class: "part" }, side === "person" ? "Answer" : "Result"), renderContent(typeof result === "boolean" || typeof result === "number" ? str(result) : result));
  }, status === "fail"), link);
}
