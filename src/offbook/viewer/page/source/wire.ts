// The bytes of an exchange, as they were on the wire.

import { curlOf } from "./copy.ts";
import { copyButton, count, h, textBlock } from "./dom.ts";
import { type Data, type TraceEvent, isRecord, str } from "./events.ts";

export function wireOf(events: TraceEvent[]): TraceEvent[] {
  return events.filter((event) => event.event === "model.wire");
}

/** Each attempt of an exchange: its request, and its response. */
export function renderWire(panel: HTMLElement, events: TraceEvent[]): void {
  panel.append(h("p", { class: "faint" }, "Secrets are masked; header names are in lower case; chunks are joined."));
  for (const { data } of events) {
    for (const [label, part] of sides(data)) {
      panel.append(h("h3", {}, `${label}: ${count(Number(part.size) || 0, "byte")}`), ...renderPart(part));
      const command = label === "Request" ? curlOf(part) : "";
      if (command) panel.append(copyButton("Copy as cURL", () => command));
    }
    if (data.ending) panel.append(h("p", { class: "remark" }, `The response broke off: ${str(data.ending)}`));
  }
}

function sides(data: Data): [string, Data][] {
  return [["Request", data.request], ["Response", data.response]].filter((side): side is [string, Data] => isRecord(side[1]));
}

function renderPart(part: Data): HTMLElement[] {
  const binary = part.encoding === "base64";
  const [start, end] = [str(part.start), str(part.end)];
  const show = (text: string) => (binary ? textBlock(dump(text), "text bytes") : textBlock(text));
  if (!end) return [start ? show(start) : h("p", { class: "faint" }, "Nothing was sent.")];
  return [show(start), h("p", { class: "remark" }, "The middle is left out."), show(end)];
}

/** Bytes as hexadecimal numbers and characters, sixteen on a line. */
function dump(base64: string): string {
  let bytes = "";
  try {
    bytes = atob(base64);
  } catch {
    return base64;
  }
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const line = bytes.slice(at, at + 16);
    const hex = [...line].map((char) => char.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(48)} ${line.replace(/[^\x20-\x7e]/g, ".")}`);
  }
  return lines.join("\n");
}
