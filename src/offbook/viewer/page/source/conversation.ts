// Messages as a conversation, and what one request adds to the one before.

import { button, count, disclosure, h, textBlock } from "./dom.ts";
import { diffTexts, pretty } from "./diff.ts";
import { type Data, compact, isRecord, list, records, str, textOf } from "./events.ts";
import type { Conversation } from "./store.ts";
import { parseJson, tree } from "./tree.ts";

const SHOWN = 40;

export function renderConversation(conversation: Conversation): HTMLElement {
  const { head, messages, reply } = conversation;
  const box = h("div", { class: "conversation" });
  if (!conversation.complete) box.append(h("p", { class: "remark" }, "Earlier messages are missing from the trace."));
  box.append(renderHead(head));
  const earlier = messages.length - SHOWN;
  const start = Math.max(0, earlier);
  if (earlier > 0) {
    const more = button(`Show ${count(earlier, "earlier message")}`, () => {
      more.replaceWith(...messages.slice(0, start).map((message, index) => renderMessage(message, index + 1)));
    }, { class: "more" });
    box.append(more);
  }
  messages.slice(start).forEach((message, offset) => box.append(renderMessage(message, start + offset + 1)));
  if (reply) {
    box.append(h("h3", { class: "divider" }, "Reply"), renderMessage({ role: "assistant", blocks: reply.blocks }, messages.length + 1));
    if (reply.stop) box.append(h("p", { class: "faint" }, `stop reason: ${str(reply.stop)}`));
  }
  return box;
}

function renderHead(head: Data): HTMLElement {
  const box = h("div", {});
  if (head.system) box.append(disclosure([h("b", {}, "system"), ` ${str(head.system).length.toLocaleString("en")} characters`], (body) => body.append(textBlock(str(head.system))), str(head.system).length < 400, "message system"));
  const tools = records(head.tools);
  if (tools.length) {
    box.append(disclosure([h("b", {}, count(tools.length, "tool")), ` ${tools.slice(0, 12).map((tool) => str(tool.name)).join(", ")}${tools.length > 12 ? " …" : ""}`], (body) => {
      for (const tool of tools) body.append(disclosure([h("b", {}, str(tool.name)), ` ${str(tool.description).slice(0, 120)}`], (inner) => inner.append(tree(tool, 3))));
    }, false, "message system"));
  }
  const rest = Object.fromEntries(Object.entries(head).filter(([name, value]) => name !== "system" && name !== "tools" && value !== "" && !(isRecord(value) && !Object.keys(value).length)));
  if (Object.keys(rest).length) box.append(disclosure([h("b", {}, "parameters"), ` ${compact(rest).slice(0, 100)}`], (body) => body.append(tree(rest, 3)), false, "message system"));
  return box;
}

export function renderMessage(message: Data, number = 0): HTMLElement {
  const role = str(message.role) || "message";
  const kind = ["user", "assistant", "tool", "system"].includes(role) ? role : "";
  const box = h("div", { class: `message ${kind}`, role: "group", aria: { label: `${role} message` } }, h("p", { class: "role" }, role, number ? h("span", { class: "faint" }, ` ${number}`) : null));
  const blocks = typeof message.blocks === "string" ? [{ type: "text", text: message.blocks }] : list(message.blocks);
  if (!blocks.length) box.append(h("p", { class: "faint" }, "(empty)"));
  for (const block of blocks) box.append(renderBlock(isRecord(block) ? block : { type: "text", text: str(block) }));
  return box;
}

export function renderBlock(block: Data): HTMLElement {
  switch (block.type) {
    case "text": return renderText(str(block.text));
    case "thinking": return h("div", { class: "thinking" }, h("p", { class: "part" }, block.redacted ? "thinking (redacted)" : "thinking"), textBlock(str(block.text)));
    case "tool_call": return h("div", { class: "call" }, h("p", { class: "part" }, "calls ", h("b", {}, str(block.name)), h("span", { class: "faint" }, ` ${str(block.id)}`)), tree(block.arguments ?? {}, 3));
    case "tool_result": return h("div", { class: block.is_error ? "result fail" : "result" },
      h("p", { class: "part" }, block.is_error ? "error of " : "result of ", h("b", {}, str(block.name) || "the call"), h("span", { class: "faint" }, ` ${str(block.call_id)}`)), renderContent(block.content));
    // an image is named, not drawn: nothing of a trace is loaded or decoded
    case "image": return h("p", { class: "faint" }, `image, ${str(block.media_type) || "type unknown"}, ${block.url ? `address ${str(block.url)}` : `${str(block.data).length.toLocaleString("en")} characters in base64`}`);
    default: return h("div", {}, h("p", { class: "part" }, str(block.kind ?? block.type)), tree(block, 2));
  }
}

/** The content of a result: trees for JSON, text for the rest. */
export function renderContent(content: unknown): HTMLElement {
  if (typeof content === "string") return renderText(content);
  const blocks = records(content);
  if (!blocks.length) return list(content).length || isRecord(content) ? tree(content, 3) : h("p", { class: "faint" }, "(nothing)");
  return h("div", {}, ...blocks.map(renderBlock));
}

export function renderText(text: string): HTMLElement {
  if (!text) return h("p", { class: "faint" }, "(an empty text)");
  const value = parseJson(text);
  if (value === null) return textBlock(text);
  const box = h("div", {});
  const asTree = tree(value, 3);
  const asText = textBlock(text);
  asText.hidden = true;
  const toggle = button("text", () => {
    asText.hidden = !asText.hidden;
    asTree.hidden = !asTree.hidden;
    toggle.textContent = asText.hidden ? "text" : "tree";
  }, { class: "more" });
  box.append(asTree, asText, toggle);
  return box;
}

/** What a request adds to the one before, removes from it and changes. */
export function renderRequestDiff(conversation: Conversation): HTMLElement {
  const { before, messages, head } = conversation;
  if (!before) return h("p", { class: "faint" }, "This is the first request: nothing to compare with.");
  const [old, now] = [before.messages.map(compact), messages.map(compact)];
  let same = 0;
  while (same < old.length && same < now.length && old[same] === now[same]) same++;
  const box = h("div", { class: "conversation" },
    h("p", {}, `Compared with the request of event ${before.index + 1}: ${count(same, "message")} unchanged, ${old.length - same} removed, ${now.length - same} added.`));
  for (const name of new Set([...Object.keys(before.head), ...Object.keys(head)])) {
    const [left, right] = [pretty(before.head[name] ?? ""), pretty(head[name] ?? "")];
    if (left !== right) box.append(h("h3", {}, `${name} changed`), diffTexts(left, right));
  }
  for (const message of before.messages.slice(same)) box.append(signed("−", "removed", message));
  for (const message of messages.slice(same)) box.append(signed("+", "added", message));
  return box;
}

function signed(sign: string, word: string, message: Data): HTMLElement {
  const box = renderMessage(message);
  box.classList.add(word);
  box.querySelector(".role")?.prepend(h("span", { class: "sign" }, `${sign} ${word} · `));
  return box;
}

export { textOf };
