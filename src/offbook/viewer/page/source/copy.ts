// What the page copies: a run as a playbook or as Markdown, a request as a command of curl.

import { type Data, isRecord, str } from "./events.ts";
import type { Row, ScriptTurn, TraceInfo } from "./store.ts";
import { distinctProblems, placeOf, OUTCOME_MARKS } from "./summary.ts";

/** The replies of the model as a playbook in YAML; values are JSON, which is YAML, too. */
export function playbookOf(turns: ScriptTurn[]): string {
  return turns.filter((turn) => turn.replies.length).map((turn) => {
    const steps = turn.replies.map((blocks) => {
      const actions = blocks.map(actionOf).filter(Boolean);
      return actions.length === 1 ? actions[0] : `[${actions.join(", ")}]`;
    });
    return [`- when: ${JSON.stringify(turn.prompt)}`, "  do:", ...steps.filter((step) => step !== "[]").map((step) => `    - ${step}`), ""].join("\n");
  }).join("");
}

function actionOf(block: Data): string {
  const text = JSON.stringify(str(block.text));
  if (block.type === "text") return `{say: ${text}}`;
  if (block.type === "thinking") return `{think: ${text}}`;
  if (block.type !== "tool_call") return "";
  const given = isRecord(block.arguments) && Object.keys(block.arguments).length ? `, with: ${JSON.stringify(block.arguments)}` : "";
  return `{call: ${JSON.stringify(str(block.name))}${given}}`;
}

/** A trace for an issue: its outcome, the reasons, the frames with the lines of the test, and the rows of the list. */
export function markdownOf(info: TraceInfo, rows: Row[]): string {
  const parts = [`### ${OUTCOME_MARKS[info.outcome]} ${info.name}: ${info.outcome}`];
  for (const { title, message, frames } of distinctProblems(info)) {
    parts.push(`**${title}**`, fenced(message));
    for (const frame of frames ?? []) parts.push(placeOf(frame), frame.open ? fenced(frame.lines.join("\n"), "python") : "");
  }
  const shown = rows.map((row) => `${"  ".repeat(row.depth)}${{ ok: "✓ ", fail: "✗ ", warn: "! ", "": "" }[row.status]}${row.title} ${row.text}`.trimEnd());
  return [...parts.filter(Boolean), fenced(shown.join("\n")), ""].join("\n\n");
}

/** A code block; its fence is longer than any in the text. */
function fenced(text: string, language = ""): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

const OWN_HEADERS = /^(host|content-length|connection|accept-encoding)$/i; // curl sends its own

/** The request of an exchange as a command; "" if its bytes are not all in the trace. */
export function curlOf(part: Data): string {
  if (part.encoding === "base64" || str(part.end)) return "";
  const [, head = "", body = ""] = /^(.*?)\r?\n\r?\n(.*)$/s.exec(str(part.start)) ?? [];
  const [first = "", ...lines] = head.split(/\r?\n/);
  const [method, path] = first.split(" ");
  if (!method || !path) return "";
  const headers = lines.map((line) => /^([^:]+): ?(.*)$/.exec(line)).filter((found) => found !== null);
  const host = headers.find(([, name]) => name!.toLowerCase() === "host")?.[2] ?? "localhost";
  const sent = headers.filter(([, name]) => !OWN_HEADERS.test(name!)).map(([line]) => `-H ${quoted(line)}`);
  return [`curl -X ${method} ${quoted(`http://${host}${path}`)}`, ...sent, ...(body ? [`--data-binary ${quoted(body)}`] : [])].join(" \\\n  ");
}

/** A word for a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
