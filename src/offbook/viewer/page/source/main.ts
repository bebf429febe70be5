// The page: its state, its keys and its address. The same script is the worker's.

import type { ChatEntry } from "./chat_entries.ts";
import { renderChat } from "./chat.ts";
import { ask, connect } from "./client.ts";
import { hasComparison, renderComparison } from "./compare.ts";
import { markdownOf, playbookOf } from "./copy.ts";
import { renderCoverage } from "./coverage.ts";
import { Detail } from "./detail.ts";
import { button, clear, copyButton, h, visible } from "./dom.ts";
import { KIND_LABELS, KINDS, type Kind, str } from "./events.ts";
import { startLive } from "./live.ts";
import { EventList } from "./list.ts";
import { renderOverview } from "./overview.ts";
import { type Filter, type Level, type PageInfo, type Row, type ScriptTurn, type StepInfo, type TraceInfo, USUAL_LEVEL } from "./store.ts";
import { OUTCOME_MARKS, outcomeBadge, reason, renderSummary } from "./summary.ts";
import { Timeline } from "./timeline.ts";
import { startWorker } from "./worker.ts";

type View = "overview" | "trace" | "chat" | "compare";

const LEVELS = ["What happened", "Usual rows", "Every event", "Every byte"];

const KEYS: [string, string][] = [
  ["↓ ↑ or j k", "next or previous event"], ["Page Down, Page Up, Home, End", "move far"], ["n, p", "next or previous failure"],
  ["Enter", "into the event; Escape back to the list"], ["Escape", "back to the summary"], ["1 … 6", "a tab of the event"], ["/", "search"], ["f", "only problems"],
  ["← →", "close or open a row"], [", .", "previous or next step: a reply of the model"], ["− +", "fewer or more details, up to every byte"],
  ["a", "all events, also replies and results on their own"], ["v", "chat or events"], ["o", "overview of all traces"], ["c", "comparison"], ["[ ]", "previous or next trace"],
  ["l", "copy a link to this event"], ["t", "light or dark"], ["?", "this list"],
];

class Page {
  private info: PageInfo | null = null;
  private view: View = "trace";
  private trace = 0;
  private event = -1;
  private tab = "event";
  private filter: Filter = { kinds: [], who: "", text: "", problems: false, level: USUAL_LEVEL, closed: [], from: -1, to: -1 };
  private writing = false; // the page changes the address itself
  private walked: Promise<void> = Promise.resolve(); // the last walk: the next one begins where it ended
  private searching = 0;
  private printing = 0;
  private readonly app = document.getElementById("app")!;
  private readonly header = h("header", { class: "top" });
  private readonly main = h("main", { class: "main" });
  private readonly toolbar = h("div", { class: "toolbar", role: "search" });
  private readonly timeline = new Timeline({
    open: (index) => void this.jump(index),
    keep: (from, to) => { Object.assign(this.filter, { from, to }); void this.applyFilter().then(() => this.drawTimeline()); },
  });
  private readonly status = h("div", { class: "status", role: "status", aria: { live: "polite" } });
  private readonly list = new EventList((index, focus) => this.openEvent(index, focus), (index, close) => this.fold(index, close));
  private readonly detail = new Detail((index, tab) => void this.jump(index, tab), (tab) => { this.tab = tab; this.writeAddress(); });
  private readonly side = h("section", { class: "side", aria: { label: "Summary or event" } });
  private readonly help = h("dialog", { class: "help", aria: { label: "Keys" } });

  async start(): Promise<void> {
    clear(this.app, this.header, this.main, this.status, this.help);
    this.main.setAttribute("aria-busy", "true");
    this.say("Reading the trace …");
    this.drawHelp();
    this.theme(load("theme"));
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("hashchange", () => { if (!this.writing) void this.readAddress(); });
    window.addEventListener("beforeprint", () => this.preparePrint());
    try {
      const info = await this.read();
      this.complete = true;
      if (this.info) await this.refresh(info);
      this.info = info;
      if (this.shown) return this.ready();
    } catch (error) {
      clear(this.main, h("p", { class: "remark fail" }, `The data of this page cannot be read: ${String(error)}`));
      return;
    }
    await this.readAddress();
    this.ready();
  }

  private ready(): void {
    this.main.setAttribute("aria-busy", "false");
    this.say("");
  }

  /** A part of the data is read: show it, unless the address names an event that may come later. */
  progress(info: PageInfo): void {
    if (this.complete) return;
    if (!/[#&]event=/.test(location.hash) || this.shown) {
      this.shown = true;
      void this.refresh(info);
    }
    const events = info.traces.reduce((sum, trace) => sum + trace.events, 0);
    this.say(`Reading … ${events.toLocaleString("en")} events`);
  }

  private complete = false;
  private shown = false; // parts of the data

  private async read(): Promise<PageInfo> {
    if (this.live) {
      startLive(this.live, (info) => void this.refresh(info), (state) => this.say(state));
      return ask<PageInfo>({ ask: "info" });
    }
    const data = document.getElementById("data")!;
    const text = data.textContent ?? "";
    data.remove(); // a large text is kept once, in the worker
    return ask<PageInfo>({ ask: "open", text: text.trim() });
  }

  /** New lines of a server were read. */
  private async refresh(info: PageInfo): Promise<void> {
    const fresh = !this.info?.traces.length && !this.info?.runs.length;
    const [before, name] = [this.info?.generation, this.current?.name];
    this.info = info;
    if (fresh) return this.readAddress();
    if (info.generation !== before) return this.showAgain(name);
    this.drawHeader();
    if (this.view === "overview") this.redrawOverview(info);
    const trace = this.current;
    if (this.view !== "trace" || !trace) return;
    const total = await ask<number>({ ask: "select", trace: this.trace, filter: this.filter });
    const atEnd = this.list.element.scrollTop + this.list.element.clientHeight >= this.list.element.scrollHeight - 60;
    this.list.element.classList.toggle("named", trace.agents.length > 0);
    this.list.grow(total, trace.duration);
    this.drawChips(trace);
    if (this.complete) this.preparePrintLater();
    if (this.live && atEnd && this.event < 0) this.list.element.scrollTop = this.list.element.scrollHeight;
    if (this.event < 0) clear(this.side, this.summaryOf(trace));
    void this.drawTimeline();
  }

  /** Everything was replaced: show the trace of this name again, or the overview. */
  private showAgain(name: string | undefined): Promise<void> {
    const index = this.info!.traces.findIndex((trace) => trace.name === name);
    if (index < 0) this.view = "overview";
    this.trace = Math.max(0, index);
    if (this.event >= (this.current?.events ?? 0)) this.event = -1;
    return this.draw();
  }

  private readonly live = document.querySelector<HTMLMetaElement>('meta[name="offbook-live"]')?.content; // the stream of a server

  private get current(): TraceInfo | undefined { return this.info?.traces[this.trace]; }

  // --- The address: a link to an event, a filter or a tab

  private address(): string {
    const parts = new URLSearchParams();
    if (this.view !== "trace") parts.set("view", this.view);
    if (this.view === "chat") parts.set("trace", String(this.trace + 1));
    if (this.view === "trace") {
      parts.set("trace", String(this.trace + 1));
      if (this.event >= 0) parts.set("event", String(this.event + 1));
      if (this.tab !== "event") parts.set("tab", this.tab);
      const { kinds, who, text, problems, level } = this.filter;
      if (kinds.length) parts.set("kinds", kinds.join(","));
      if (who) parts.set("who", who);
      if (text) parts.set("q", text);
      if (problems) parts.set("problems", "1");
      if (level !== USUAL_LEVEL) parts.set("level", String(level));
    }
    return `#${parts.toString()}`;
  }

  private writeAddress(): void {
    if (!this.info?.traces.length && !this.info?.runs.length) return; // a server has sent nothing yet
    this.writing = true;
    history.replaceState(null, "", this.address());
    this.writing = false;
  }

  private async readAddress(): Promise<void> {
    const info = this.info;
    if (!info) return;
    const parts = new URLSearchParams(location.hash.slice(1));
    const several = info.traces.length > 1 || info.runs.length > 0;
    const fallback: View = hasComparison(info) ? "compare" : several || !info.traces.length ? "overview" : "trace";
    const wanted = parts.get("view") ?? (parts.has("trace") ? "trace" : fallback);
    this.view = wanted === "compare" || wanted === "overview" || wanted === "chat" ? wanted : "trace";
    this.trace = Math.max(0, Math.min(info.traces.length - 1, Number(parts.get("trace") ?? 1) - 1 || 0));
    this.event = Number(parts.get("event") ?? 0) - 1;
    this.tab = parts.get("tab") ?? "event";
    const kinds = (parts.get("kinds") ?? "").split(",").filter((kind): kind is Kind => (KINDS as readonly string[]).includes(kind));
    const level = Number(parts.get("level") ?? (parts.has("all") ? 2 : USUAL_LEVEL)); // links of version 1.0 have `all`
    this.filter = { kinds, who: parts.get("who") ?? "", text: parts.get("q") ?? "", problems: parts.has("problems"), level: (LEVELS[level] ? level : USUAL_LEVEL) as Level, closed: [], from: -1, to: -1 };
    await this.draw();
  }

  // --- Views

  private async draw(): Promise<void> {
    const info = this.info!;
    this.drawHeader();
    if (this.view === "overview") {
      clear(this.main, renderOverview(info, this.openTrial, (trace) => this.openTrace(trace)));
      this.main.querySelector<HTMLElement>("#overview")?.focus();
    } else if (this.view === "compare") {
      clear(this.main, renderComparison(info, (trace, seq) => void this.openStep(trace, seq)));
      this.main.querySelector<HTMLElement>("#compare")?.focus();
    } else if (this.view === "chat") {
      const entries = await ask<ChatEntry[] | null>({ ask: "chat", trace: this.trace });
      clear(this.main, renderChat(entries ?? [], (index) => { this.view = "trace"; this.event = index; void this.draw(); }));
      this.main.querySelector<HTMLElement>("#chat")?.focus();
    } else {
      this.drawToolbar();
      clear(this.main, this.timeline.element, this.toolbar, h("div", { class: "split" }, this.list.element, this.side));
      await this.applyFilter();
      if (this.event >= 0) await this.jump(this.event);
      else this.showSummary();
      void this.drawTimeline();
      if (!document.activeElement || document.activeElement === document.body) this.list.element.focus({ preventScroll: true });
    }
    this.writeAddress();
  }

  private readonly openTrial = { key: "" };

  /** Draw the overview of a run that goes on; the focus and the place stay. */
  private redrawOverview(info: PageInfo): void {
    const focused = (document.activeElement as HTMLElement | null)?.dataset.focus;
    const top = this.main.querySelector("#overview")?.scrollTop ?? 0;
    clear(this.main, renderOverview(info, this.openTrial, (trace) => this.openTrace(trace)));
    const overview = this.main.querySelector<HTMLElement>("#overview")!;
    overview.scrollTop = top;
    const again = [...overview.querySelectorAll<HTMLElement>("[data-focus]")].find((element) => element.dataset.focus === focused);
    (again ?? overview).focus({ preventScroll: true });
  }

  /** The summary of a trace. A page of one trace has the coverage of the agent below it. */
  private summaryOf(trace: TraceInfo): HTMLElement {
    const box = renderSummary(trace, (index) => void this.jump(index));
    const index = this.trace;
    box.querySelector("h2")?.after(h("div", { class: "copies" },
      copyButton("Copy as Markdown", async () => markdownOf(trace, await ask<Row[]>({ ask: "outline", trace: index }))),
      trace.replies ? copyButton("Copy as playbook", async () => playbookOf(await ask<ScriptTurn[]>({ ask: "script", trace: index }))) : null));
    const coverage = this.info!.traces.length === 1 ? renderCoverage(this.info!.coverage, false) : null;
    if (coverage) box.querySelector(".keys-hint")?.before(coverage);
    return box;
  }

  private drawHeader(): void {
    const info = this.info!;
    const trace = this.current;
    const several = info.traces.length > 1 || info.runs.length > 0;
    const title = str(info.page.title) || trace?.name || "Offbook";
    document.title = trace && this.view === "trace" ? `${OUTCOME_MARKS[trace.outcome]} ${trace.name}` : title;
    const why = trace ? visible(reason(trace)) : "";
    clear(this.header,
      h("h1", {}, visible(title)),
      (this.view === "trace" || this.view === "chat") && trace ? h("span", { class: "top-outcome" }, outcomeBadge(trace.outcome), h("span", { class: "top-why", title: why }, why)) : h("span", { class: "top-outcome" }),
      h("nav", { aria: { label: "Views" } },
        several ? button("Overview", () => this.show("overview"), { aria: { keyshortcuts: "o", current: this.view === "overview" ? "page" : "false" } }) : null,
        hasComparison(info) ? button("Compare", () => this.show("compare"), { aria: { keyshortcuts: "c", current: this.view === "compare" ? "page" : "false" } }) : null,
        trace ? button("Chat", () => this.show(this.view === "chat" ? "trace" : "chat"), { title: "The run as a chat (v)", aria: { keyshortcuts: "v", current: this.view === "chat" ? "page" : "false" } }) : null,
        several && info.traces.length ? this.traceMenu(info) : null,
        this.live ? button("Review", () => location.assign("review"), { title: "Pending snapshots and goldens" }) : null,
        button("◐", () => this.toggleTheme(), { title: "Light or dark (t)", aria: { label: "Light or dark" } }),
        button("?", () => this.help.showModal(), { title: "Keys (?)", aria: { label: "Keys" } })));
  }

  private traceMenu(info: PageInfo): HTMLElement {
    const menu = h("select", { aria: { label: "Trace" }, on: { change: () => this.openTrace(Number(menu.value)) } },
      ...info.traces.slice(0, 2000).map((trace, index) => h("option", { value: String(index) }, `${trace.outcome === "failed" ? "✗ " : ""}${visible(trace.name)}`)));
    menu.value = String(this.trace);
    return menu;
  }

  private show(view: View): void {
    this.view = view;
    void this.draw();
  }

  private async openStep(trace: number, seq: number): Promise<void> {
    const index = await ask<number>({ ask: "find", trace, seq });
    this.view = "trace";
    this.trace = trace;
    this.event = index;
    await this.draw();
  }

  private openTrace(trace: number): void {
    if (!this.info?.traces[trace]) return;
    if (this.view !== "chat") this.view = "trace";
    this.trace = trace;
    this.event = -1;
    this.filter.closed = [];
    this.tab = "event";
    this.list.mark(-1);
    this.list.element.scrollTop = 0;
    void this.draw();
  }

  private drawToolbar(): void {
    const trace = this.current;
    if (!trace) return;
    const search = h("input", { type: "search", id: "search", placeholder: "Search in all events ( / )", value: this.filter.text, autocomplete: "off", spellcheck: "false", aria: { label: "Search" } });
    search.addEventListener("input", () => {
      clearTimeout(this.searching);
      this.searching = window.setTimeout(() => { this.filter.text = search.value; void this.applyFilter(); }, 150);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        search.value = "";
        this.filter = { ...this.filter, text: "", kinds: [], who: "", problems: false, from: -1, to: -1 };
        this.drawToolbar();
        void this.applyFilter();
        this.list.element.focus();
      } else if (event.key === "Enter" || event.key === "ArrowDown") {
        event.preventDefault();
        this.list.element.focus();
        void this.list.go(0);
      } else return;
      event.stopPropagation();
    });
    const levels = h("select", { id: "level", title: "Keys − and +", aria: { label: "Level of detail" }, on: { change: () => this.setLevel(Number(levels.value)) } },
      ...LEVELS.map((label, level) => h("option", { value: String(level) }, label)));
    levels.value = String(this.filter.level);
    const problems = h("button", { type: "button", class: "chip", title: "Key f", aria: { pressed: this.filter.problems, keyshortcuts: "f" }, data: { toggle: "problems" }, on: { click: () => this.flipProblems() } }, "Problems");
    clear(this.toolbar, search, levels, this.chips, this.agents, problems);
    this.drawChips(trace);
  }

  private readonly chips = h("div", { class: "chips", role: "group", aria: { label: "Kinds of events" } });
  private readonly agents = h("select", { id: "who", aria: { label: "Agent or hat" }, on: { change: () => { this.filter.who = this.agents.value; void this.applyFilter(); } } });

  /** The kinds and the agents of the trace: more may come while it is read. */
  private drawChips(trace: TraceInfo): void {
    const focused = (document.activeElement as HTMLElement | null)?.dataset.kind;
    const counts = trace.counts[this.filter.level]!; // as many as the list has rows
    clear(this.chips, ...KINDS.filter((kind) => counts[kind]).map((kind) =>
      h("button", { type: "button", class: `chip ${kind}`, data: { kind }, aria: { pressed: this.filter.kinds.includes(kind) }, on: { click: () => this.toggleKind(kind) } },
        KIND_LABELS[kind], h("span", { class: "faint" }, ` ${counts[kind]!.toLocaleString("en")}`))));
    if (focused) this.chips.querySelector<HTMLElement>(`[data-kind="${focused}"]`)?.focus();
    this.agents.hidden = !trace.agents.length;
    const names = trace.agents.slice(0, 500).map(([name]) => name);
    if (this.agents.options.length !== names.length + 1 || this.agents.value !== this.filter.who) {
      clear(this.agents, h("option", { value: "" }, "all agents"), ...names.map((name) => h("option", { value: name }, visible(name))));
      this.agents.value = this.filter.who;
    }
  }

  private flipProblems(): void {
    this.filter.problems = !this.filter.problems;
    this.drawToolbar();
    void this.applyFilter();
  }

  private setLevel(level: number): void {
    if (!LEVELS[level]) return;
    this.filter.level = level as Level;
    this.drawToolbar();
    void this.applyFilter();
    if (this.event >= 0) this.openEvent(this.event, false);
  }

  /** Hide or show the rows below one. */
  private fold(index: number, close: boolean): void {
    const others = this.filter.closed.filter((each) => each !== index);
    this.filter.closed = close ? [...others, index] : others;
    void this.applyFilter();
  }

  private toggleKind(kind: Kind): void {
    const { kinds } = this.filter;
    this.filter.kinds = kinds.includes(kind) ? kinds.filter((each) => each !== kind) : [...kinds, kind];
    if (this.current) this.drawChips(this.current);
    void this.applyFilter();
  }

  private async applyFilter(): Promise<void> {
    const trace = this.current;
    if (!trace) return;
    const total = await ask<number>({ ask: "select", trace: this.trace, filter: this.filter });
    this.list.element.classList.toggle("named", trace.agents.length > 0);
    this.list.show(this.trace, total, trace.duration);
    if (this.complete) this.preparePrintLater();
    const { kinds, who, text, problems, from } = this.filter;
    this.say(kinds.length || who || text || problems || from >= 0 ? `${total.toLocaleString("en")} rows match` : "");
    if (this.event >= 0) this.list.position = await ask<number>({ ask: "position", trace: this.trace, index: this.event });
    this.writeAddress();
  }

  // --- Events

  private openEvent(index: number, focus: boolean): void {
    this.event = index;
    clear(this.side, this.detail.element);
    this.app.classList.add("with-event");
    const tab = this.tab === "event" && this.filter.level === 3 ? "bytes" : this.tab;
    void this.detail.show(this.trace, index, this.current!, tab).then(() => { if (focus) this.focusPanel(); });
    this.writeAddress();
    void this.drawTimeline();
  }

  private drawTimeline(): Promise<void> {
    return this.timeline.show(this.trace, this.event, this.filter.from, this.filter.to);
  }

  /** Select an event; without the filter if the filter hides it. */
  private async jump(index: number, tab = ""): Promise<void> {
    const trace = this.current;
    if (!trace || index < 0 || index >= trace.events) return this.showSummary();
    this.tab = tab || (this.event === index ? this.tab : "event");
    let position = await ask<number>({ ask: "position", trace: this.trace, index });
    const at = async () => (await ask<{ index: number }[]>({ ask: "rows", trace: this.trace, start: position, end: position + 1 }))[0]?.index;
    const found = position >= 0 ? await at() : undefined;
    if (found !== index) {
      const opened = await ask<{ row: { pair: number; folded: boolean } } | null>({ ask: "event", trace: this.trace, index });
      // a reply or a result is in the row of its beginning
      const shown = opened?.row.folded && opened.row.pair >= 0 ? opened.row.pair : index;
      position = await ask<number>({ ask: "position", trace: this.trace, index: shown });
      if (position < 0 || (await at()) !== shown) {
        const level = Math.max(this.filter.level, USUAL_LEVEL) as Level;
        this.filter = { ...this.filter, kinds: [], who: "", text: "", problems: false, level, closed: [], from: -1, to: -1 };
        this.drawToolbar();
        await this.applyFilter();
        position = await ask<number>({ ask: "position", trace: this.trace, index: shown });
      }
    }
    await this.list.go(position);
  }

  private showSummary(): void {
    this.event = -1;
    this.tab = "event";
    this.app.classList.remove("with-event");
    this.detail.hide();
    this.list.mark(-1);
    if (this.current) clear(this.side, this.summaryOf(this.current));
    else clear(this.side, h("p", { class: "remark" }, "This page has no trace."));
    this.writeAddress();
  }

  private focusPanel(): void {
    this.side.querySelector<HTMLElement>(".panel")?.focus();
  }

  /** Begin when the walk before it has ended: keys may be pressed faster than the page answers. */
  private walk(go: () => Promise<void>): void {
    this.walked = this.walked.then(go, go);
  }

  /** Go to the next or previous reply of the model; the tab stays. */
  private async walkSteps(step: 1 | -1): Promise<void> {
    const { previous, next } = await ask<StepInfo>({ ask: "step", trace: this.trace, index: this.event });
    const index = step > 0 ? next : previous;
    if (index >= 0) await this.jump(index, this.tab);
    else this.say(step > 0 ? "This is the last step." : "This is the first step.");
  }

  private async walkProblems(step: 1 | -1): Promise<void> {
    const from = this.event < 0 ? (step > 0 ? -1 : this.current?.events ?? 0) : this.event;
    const index = await ask<number>({ ask: "problem", trace: this.trace, index: from, step });
    if (index >= 0) await this.jump(index);
    else this.say(step > 0 ? "No further failure." : "No earlier failure.");
  }

  /** Open the next case that failed, or go to the next trace that failed. */
  private walkCases(step: 1 | -1): void {
    const failed = [...this.main.querySelectorAll<HTMLElement>("tr.fail button.link")];
    const at = failed.indexOf(document.activeElement as HTMLElement);
    const next = failed[at < 0 ? (step > 0 ? 0 : failed.length - 1) : at + step];
    if (!next) return this.say(failed.length ? "No further failure." : "Nothing failed.");
    next.focus();
    if (next.closest(".run")) next.click();
  }

  // --- Keys, theme, paper

  private onKey(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    const typing = target.matches("input, textarea, select");
    if (typing && event.key !== "Escape") return;
    const inPanel = target.closest(".side") !== null;
    const keys: Record<string, () => void> = {
      "?": () => this.help.showModal(), t: () => this.toggleTheme(),
      v: () => { if (this.current) this.show(this.view === "chat" ? "trace" : "chat"); },
      o: () => { if (this.info && (this.info.traces.length > 1 || this.info.runs.length)) this.show("overview"); },
      c: () => { if (this.info && hasComparison(this.info)) this.show("compare"); },
      "[": () => this.openTrace(this.view === "trace" ? this.trace - 1 : this.trace), "]": () => this.openTrace(this.view === "trace" ? this.trace + 1 : this.trace),
    };
    if (this.view === "overview") Object.assign(keys, { n: () => this.walkCases(1), p: () => this.walkCases(-1) });
    if (this.view === "trace") Object.assign(keys, {
      "/": () => { this.toolbar.querySelector<HTMLInputElement>("#search")?.focus(); },
      j: () => void this.list.go(this.list.position + 1), k: () => void this.list.go(this.list.position - 1),
      n: () => this.walk(() => this.walkProblems(1)), p: () => this.walk(() => this.walkProblems(-1)),
      f: () => this.flipProblems(), a: () => this.setLevel(this.filter.level === 2 ? USUAL_LEVEL : 2), l: () => void this.copyLink(),
      "+": () => this.setLevel(this.filter.level + 1), "-": () => this.setLevel(this.filter.level - 1),
      ",": () => this.walk(() => this.walkSteps(-1)), ".": () => this.walk(() => this.walkSteps(1)),
      Escape: () => { if (inPanel && this.event >= 0) this.list.element.focus(); else { this.showSummary(); this.list.element.focus(); } },
    });
    if (this.view === "trace" && !inPanel && !target.closest("button, summary, a")) {
      keys.Enter = () => { if (this.event >= 0) this.focusPanel(); };
      if (target !== this.list.element) {
        keys.ArrowDown = () => { this.list.element.focus(); void this.list.go(this.list.position + 1); };
        keys.ArrowUp = () => { this.list.element.focus(); void this.list.go(this.list.position - 1); };
      }
    }
    for (let number = 1; number <= 6; number++) keys[String(number)] = () => this.detail.choose(number - 1);
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  private async copyLink(): Promise<void> {
    this.writeAddress();
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("The link is copied.");
    } catch {
      this.say("The link is the address of this page.");
    }
  }

  private drawHelp(): void {
    clear(this.help, h("h2", {}, "Keys"), h("table", {}, ...KEYS.map(([key, meaning]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, meaning)))), button("Close", () => this.help.close()));
  }

  private theme(theme: string): void {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    void this.timeline.draw();
  }

  private toggleTheme(): void {
    const dark = (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    save("theme", dark ? "light" : "dark");
    this.theme(dark ? "light" : "dark");
  }

  private preparePrintLater(): void {
    clearTimeout(this.printing);
    this.printing = window.setTimeout(() => void this.list.preparePrint(), 500);
  }

  private preparePrint(): void {
    document.querySelector(".print-list")?.remove();
    if (this.view === "trace") this.main.append(this.list.printable());
  }

  private say(text: string): void {
    this.status.textContent = text;
  }
}

function load(name: string): string {
  try { return localStorage.getItem(`offbook-${name}`) ?? ""; } catch { return ""; }
}

function save(name: string, value: string): void {
  try { localStorage.setItem(`offbook-${name}`, value); } catch { /* a page from disk may have no storage */ }
}

if (typeof document === "undefined") startWorker();
else {
  const script = document.currentScript?.textContent ?? "";
  const page = new Page();
  connect(script, (info) => page.progress(info as PageInfo));
  void page.start();
}
