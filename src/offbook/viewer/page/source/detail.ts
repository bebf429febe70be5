// One event in full, in tabs.

import { ansi } from "./ansi.ts";
import { ask } from "./client.ts";
import { renderBlock, renderContent, renderConversation, renderMessage, renderRequestDiff } from "./conversation.ts";
import { button, clear, count, disclosure, duration, h, money, textBlock, visible } from "./dom.ts";
import { diffTexts, expectedBesideActual, pretty, renderMessageText } from "./diff.ts";
import { type Data, type TraceEvent, isRecord, list, records, str, textOf } from "./events.ts";
import { renderForks } from "./fork.ts";
import type { Conversation, Moment, Row, StepInfo, TraceInfo } from "./store.ts";
import { tree } from "./tree.ts";
import { renderWire, wireOf } from "./wire.ts";

interface Opened { event: TraceEvent; row: Row; raw: string; related: TraceEvent[] }
interface Tab { id: string; label: string; fill: (panel: HTMLElement) => Promise<void> | void }

export class Detail {
  readonly element = h("div", { class: "detail-event" });
  private version = 0;
  private tabs: Tab[] = [];
  private tab = "event";
  private reading = false;
  private chosen = -1; // the number of a tab that was chosen while its event is read

  constructor(private readonly open: (index: number, tab: string) => void, private readonly onTab: (tab: string) => void) {}

  async show(trace: number, index: number, info: TraceInfo, tab: string): Promise<void> {
    const version = ++this.version;
    this.reading = true;
    const opened = await ask<Opened | null>({ ask: "event", trace, index });
    if (version !== this.version) return;
    if (!opened?.event) {
      this.reading = false;
      return;
    }
    const { row } = opened;
    const talk = row.kind === "model" ? await ask<Conversation | null>({ ask: "conversation", trace, index }) : null;
    const changes = info.kinds.cell || info.kinds.file || info.calls ? await ask<number[]>({ ask: "changes", trace }) : [];
    const step = await ask<StepInfo>({ ask: "step", trace, index });
    if (version !== this.version) return;
    const end = Math.max(index, row.folded ? index : row.pair); // a row ends with its reply or result
    this.tabs = [{ id: "event", label: talk ? "Reply" : eventLabel(row), fill: (panel) => renderEvent(panel, opened, talk) }];
    if (talk) {
      this.tabs.push({ id: "conversation", label: "Conversation", fill: (panel) => panel.append(renderConversation(talk)) });
      this.tabs.push({ id: "added", label: "Request diff", fill: (panel) => panel.append(renderRequestDiff(talk)) });
    }
    if (info.kinds.process) this.tabs.push({ id: "output", label: "Output", fill: (panel) => this.renderOutput(panel, trace, end) });
    if (changes.length || step.number) this.tabs.push({ id: "state", label: "State", fill: (panel) => this.renderState(panel, trace, end, changes, step, info) });
    const wire = wireOf(opened.related);
    if (talk && wire.length) this.tabs.push({ id: "wire", label: "Wire", fill: (panel) => renderWire(panel, wire) });
    this.tabs.push({ id: "raw", label: "Raw", fill: (panel) => renderRaw(panel, opened) });
    const wanted = tab !== "bytes" ? tab : this.tabs.some(({ id }) => id === "wire") ? "wire" : "raw";
    this.tab = this.tabs.some((entry) => entry.id === wanted) ? wanted : "event";
    this.draw(opened, step);
    this.reading = false;
    this.choose(this.chosen);
    this.chosen = -1;
  }

  hide(): void {
    this.version++;
    this.reading = false;
    this.chosen = -1;
    clear(this.element);
  }

  private draw({ row, event }: Opened, step: StepInfo): void {
    const facts = [row.name, `event ${row.index + 1}`, step.number ? `step ${step.number} of ${step.total}` : "", `at ${duration(row.ts)}`, row.duration >= 0 ? `took ${duration(row.duration)}` : "",
      row.who, row.tokens ? count(row.tokens, "token") : "", money(row.cost), event.ts > 1e11 ? new Date(event.ts).toISOString() : ""];
    const head = h("header", { class: "event-head" },
      h("h2", { class: row.status }, visible(row.title), row.kind === "model" ? "" : ` ${visible(row.text)}`),
      h("p", { class: "faint facts" }, facts.filter(Boolean).map(visible).join(" · ")));
    const panel = h("div", { class: "panel", role: "tabpanel", id: "panel", tabindex: 0, aria: { labelledby: `tab-${this.tab}` } });
    const bar = h("div", { class: "tabs", role: "tablist", aria: { label: "Parts of the event" } });
    this.tabs.forEach((tab, number) => {
      const selected = tab.id === this.tab;
      bar.append(h("button", {
        type: "button", role: "tab", id: `tab-${tab.id}`, tabindex: selected ? 0 : -1, aria: { selected, controls: "panel", keyshortcuts: number + 1 }, title: `Key ${number + 1}`,
        on: { click: () => this.choose(number), keydown: (key) => this.onKey(key as KeyboardEvent, number) },
      }, tab.label));
    });
    clear(this.element, head, bar, panel);
    void this.tabs.find((tab) => tab.id === this.tab)?.fill(panel);
  }

  private onKey(event: KeyboardEvent, number: number): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.choose((number + step + this.tabs.length) % this.tabs.length);
    this.element.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]')?.focus();
  }

  /** Show a tab by its number, as the keys 1 to 6 do. */
  choose(number: number): void {
    if (this.reading) {
      this.chosen = number;
      return;
    }
    const tab = this.tabs[number];
    if (!tab || tab.id === this.tab) return;
    this.tab = tab.id;
    const panel = this.element.querySelector<HTMLElement>(".panel");
    if (!panel) return;
    for (const each of this.element.querySelectorAll('[role="tab"]')) {
      const selected = each.id === `tab-${tab.id}`;
      each.setAttribute("aria-selected", String(selected));
      each.setAttribute("tabindex", selected ? "0" : "-1");
    }
    panel.setAttribute("aria-labelledby", `tab-${tab.id}`);
    clear(panel);
    panel.scrollTop = 0;
    this.onTab(tab.id);
    void tab.fill(panel);
  }

  private async renderOutput(panel: HTMLElement, trace: number, index: number): Promise<void> {
    const parts = await ask<{ stream: string; text: string; index: number }[]>({ ask: "output", trace, index });
    if (!parts.length) return panel.append(h("p", { class: "faint" }, "No output up to this event."));
    panel.append(h("p", { class: "faint" }, "What processes printed up to this event. Standard error has a red edge."));
    const box = h("div", { class: "terminal", tabindex: 0, role: "group", aria: { label: "terminal output" } });
    for (const part of parts) {
      const line = h("pre", { class: part.stream === "stderr" ? "stderr" : "stdout" });
      line.append(ansi(part.text));
      box.append(line);
    }
    panel.append(box);
  }

  /** The conversation, the files and the cells after an event, and how to repeat the run up to it. */
  private async renderState(panel: HTMLElement, trace: number, index: number, changes: number[], step: StepInfo, info: TraceInfo): Promise<void> {
    const walk = (label: string, to: number, key: string) => button(label, () => this.open(to, "state"), { class: "more", disabled: to < 0, title: `Key ${key}` });
    if (step.total) panel.append(h("p", { class: "steps" }, walk("‹ Previous step", step.previous, ","), step.number ? ` Step ${step.number} of ${step.total} ` : " Before the first step ", walk("Next step ›", step.next, ".")));
    if (info.tape && step.number) panel.append(renderForks(info.tape, step));
    const talk = step.index >= 0 ? await ask<Conversation | null>({ ask: "conversation", trace, index: step.index }) : null;
    if (talk) panel.append(disclosure([h("b", {}, "Conversation"), ` ${count(talk.messages.length + (talk.reply ? 1 : 0), "message")}`], (body) => body.append(renderConversation(talk)), !changes.length, "item"));
    if (!changes.length) return;
    const earlier = changes.filter((change) => change <= index);
    const now = await ask<Moment>({ ask: "moment", trace, index });
    const start = { cells: {}, files: {} };
    const choices = h("select", { id: "moment" }, h("option", { value: "-1" }, "the start"),
      ...earlier.slice(-200).map((change) => h("option", { value: String(change - 1) }, `before event ${change + 1}`)));
    if (earlier.length) choices.value = String(earlier.at(-1)! - 1);
    const result = h("div", {});
    const update = async () => {
      const from = Number(choices.value);
      clear(result, renderMoments(from < 0 ? start : await ask<Moment>({ ask: "moment", trace, index: from }), now));
    };
    choices.addEventListener("change", () => void update());
    panel.append(h("p", {}, h("label", { for: "moment" }, "State after this event, compared with "), choices),
      changes.some((change) => change > index) ? button("Next change", () => this.open(changes.find((change) => change > index)!, "state"), { class: "more" }) : h("span", {}), result);
    await update();
  }
}

function eventLabel(row: Row): string {
  return { tool: "Call", check: "Check", process: "Process", cell: "Cell" }[row.kind as string] ?? "Event";
}

function renderMoments(before: Moment, after: Moment): HTMLElement {
  const box = h("div", { class: "state" });
  const part = (title: string, old: Data, now: Data) => {
    const names = [...new Set([...Object.keys(old), ...Object.keys(now)])].sort();
    if (!names.length) return;
    box.append(h("h3", {}, `${title} (${names.length})`));
    for (const name of names) {
      const [left, right] = [name in old ? pretty(old[name]) : "", name in now ? pretty(now[name]) : ""];
      const word = !(name in old) ? "added" : !(name in now) ? "removed" : left === right ? "" : "changed";
      box.append(disclosure([h("b", {}, visible(name)), word ? h("span", { class: `badge ${word}` }, word) : null],
        (body) => body.append(word === "changed" ? diffTexts(left, right) : typeof now[name] === "string" ? textBlock(right) : tree(now[name], 3)), Boolean(word), "item"));
    }
  };
  part("Cells", before.cells, after.cells);
  part("Files", before.files, after.files);
  if (!box.children.length) box.append(h("p", { class: "faint" }, "Nothing is written up to this event."));
  return box;
}

export function renderCheck(data: Data): HTMLElement {
  const box = h("div", {});
  if (data.message) box.append(renderMessageText(str(data.message)));
  const has = (name: string) => data[name] !== undefined && data[name] !== null;
  if (has("expected") || has("actual")) box.append(expectedBesideActual(data.expected ?? null, data.actual ?? null));
  if (isRecord(data.context) && Object.keys(data.context).length) box.append(h("h3", {}, "Context"), tree(data.context, 2));
  return box;
}

function section(title: string, ...children: (Node | null)[]): HTMLElement {
  return h("section", {}, h("h3", {}, title), ...children);
}

function renderEvent(panel: HTMLElement, { event, row, related }: Opened, talk: Conversation | null): void {
  const { data } = event;
  if (talk) return renderModel(panel, talk, related);
  switch (row.name) {
    case "tool.call": case "tool.result": case "tool.blocked": case "tool.error": case "tool.start": case "tool.end": return renderTool(panel, related);
    case "check.verdict": return panel.append(renderCheck(data));
    case "_meta.run_end":
      if (!data.ok) panel.append(renderMessageText(str(data.error)));
      if (data.output !== undefined) panel.append(section("The agent returned", renderContent(data.output)));
      return panel.append(section("Data", tree(data)));
    case "agent.start": panel.append(section("Prompt", textBlock(str(data.prompt)))); break;
    case "process.output": {
      const box = h("pre", { class: "terminal", tabindex: 0 });
      box.append(ansi(str(data.text)));
      return panel.append(box);
    }
    case "ux.terminal.write": return panel.append(h("p", { class: "faint" }, "The tab Output shows the terminal up to this event."), tree(data));
    case "cell.write": case "cell.compute": if ("value" in data) panel.append(section("Value", tree(data.value, 3))); break;
    case "bus.publish": panel.append(section(str(data.topic), renderContent(data.payload ?? ""))); break;
    case "model.error": panel.append(renderMessageText(str(data.message))); break;
    case "model.wire": return renderWire(panel, [event]);
    case "step.pre": case "step.post": for (const each of related) if (each.event !== row.name) panel.append(section(row.name === "step.pre" ? "Ended with" : "Began with", tree(each.data))); break;
  }
  if (row.kind === "fault" && (data.error ?? data.message)) panel.append(renderMessageText(str(data.error ?? data.message)));
  panel.append(Object.keys(data).length ? section("Data", tree(data, 2)) : h("p", { class: "faint" }, "This event has no data."));
  if (event.context) panel.append(section("Context", tree(event.context)));
}

function renderModel(panel: HTMLElement, talk: Conversation, events: TraceEvent[]): void {
  const failed = events.find((event) => event.event === "model.error");
  if (failed) panel.append(section("The model answered with an error", renderMessageText(str(failed.data.message)), tree(failed.data)));
  const { reply } = talk;
  if (reply && !failed) {
    panel.append(section("The model replied", ...records(reply.blocks).map(renderBlock)));
    const usage = isRecord(reply.usage) ? reply.usage : null;
    const facts = [reply.stop ? `stop reason ${str(reply.stop)}` : "", reply.model ? `model ${str(reply.model)}` : "", reply.step ? `scripted step ${str(reply.step)}` : "",
      usage ? `${str(usage.input ?? 0)} tokens in, ${str(usage.output ?? 0)} out${usage.cache_read ? `, ${str(usage.cache_read)} from the cache` : ""}${usage.reasoning ? `, ${str(usage.reasoning)} reasoning` : ""}` : ""];
    panel.append(h("p", { class: "faint" }, facts.filter(Boolean).join(" · ")));
  } else if (!failed) panel.append(h("p", { class: "remark" }, "The trace has no reply to this request."));
  const request = events.find((event) => event.event === "model.request");
  const added = records(request?.data.new);
  panel.append(section(`New in this request (${count(added.length, "message")} of ${str(request?.data.count ?? added.length)})`, ...added.map((message) => renderMessage(message))));
}

function renderTool(panel: HTMLElement, related: TraceEvent[]): void {
  const find = (name: string) => related.find((each) => each.event === name)?.data;
  const call = find("tool.call");
  const result = find("tool.result");
  const blocked = find("tool.blocked");
  const raised = find("tool.error");
  if (blocked) panel.append(section("A hook blocked this call", renderMessageText(str(blocked.reason) || "without a reason")));
  if (raised) panel.append(section("The tool raised", renderMessageText(str(raised.error))));
  const changed = find("hook.tool_call");
  if (changed) panel.append(section("A hook changed the arguments", tree(changed, 3)));
  if (call) panel.append(section("Arguments", tree(call.input ?? {}, 4)));
  for (const { data } of related.filter((each) => each.event === "tool.start")) {
    const end = related.find((each) => each.event === "tool.end" && each.data.number === data.number)?.data;
    const took = end ? `${str(end.ms)} ms` : "it did not end";
    panel.append(section(Number(data.number ?? 1) > 1 ? `Ran again (${took})` : `Ran (${took})`, JSON.stringify(data.input) === JSON.stringify(call?.input) ? null : tree(data.input ?? {}, 4)));
  }
  const returned = related.findLast((each) => each.event === "tool.end" && !each.data.is_error)?.data.content;
  if (result && returned && textOf(returned).trim() !== textOf(result.content).trim()) panel.append(section("The tool returned", renderContent(returned)));
  if (result) {
    panel.append(section(result.is_error ? "Error" : "Result", renderContent(result.content), result.mocked ? h("p", { class: "remark" }, "The result is of a mock.") : null));
    if (isRecord(result.details) ? Object.keys(result.details).length : list(result.details).length) panel.append(section("Details", tree(result.details)));
  } else if (call && !blocked) panel.append(h("p", { class: "remark fail" }, "The trace has no result of this call: the agent did not send it to the model."));
}

function renderRaw(panel: HTMLElement, { event, raw, related }: Opened): void {
  const fields: Data = { ...event };
  for (const name of Object.keys(fields)) if (fields[name] === undefined) delete fields[name];
  const text = JSON.stringify(fields, null, 2);
  panel.append(section("Event", textBlock(text)));
  if (raw.length > 1e6) panel.append(h("p", { class: "faint" }, `${raw.length.toLocaleString("en")} characters`));
  for (const each of related) {
    if (each.event !== event.event) panel.append(disclosure([visible(each.event)], (body) => body.append(textBlock(JSON.stringify(each, null, 2)))));
  }
}
