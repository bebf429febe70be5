// The list of events: only the rows in sight are elements, so a million events scroll smoothly.

import { duration, h, money, visible } from "./dom.ts";
import { ask } from "./client.ts";
import type { Row } from "./store.ts";

export const ROW_HEIGHT = 28;
const MAX_HEIGHT = 15_000_000; // browsers limit the height of an element
const OVERSCAN = 15;
const PRINTED = 2000; // rows on paper
export const MARKS = { ok: "✓", fail: "✗", warn: "!", "": "" } as const;

export class EventList {
  readonly element: HTMLElement;
  private readonly canvas = h("div", { class: "list-canvas", role: "presentation" });
  private readonly empty = h("p", { class: "empty", hidden: true }, "No event matches. Press Escape in the search box to clear the filter.");
  private total = 0;
  private trace = 0;
  private span = 1;
  private cache = new Map<number, Row>();
  private drawn = new Map<number, HTMLElement>();
  private version = 0;
  private frame = 0;
  position = -1; // of the selected row in the selection
  selected = -1; // its event

  constructor(private readonly onSelect: (index: number, focus: boolean) => void) {
    this.element = h("div", {
      class: "list", id: "events", role: "listbox", tabindex: 0, aria: { label: "Events of the trace" },
      on: { scroll: () => this.schedule(), keydown: (event) => this.onKey(event as KeyboardEvent), click: (event) => this.onClick(event) },
    }, this.canvas, this.empty);
    new ResizeObserver(() => this.schedule()).observe(this.element);
  }

  /** Show another selection of a trace. */
  show(trace: number, total: number, span: number): void {
    this.version++;
    this.trace = trace;
    this.total = total;
    this.span = Math.max(1, span);
    this.cache.clear();
    for (const element of this.drawn.values()) element.remove();
    this.drawn.clear();
    this.canvas.style.setProperty("height", `${Math.min(MAX_HEIGHT, total * ROW_HEIGHT)}px`);
    this.empty.hidden = total > 0;
    this.schedule();
  }

  /** More events were added at the end. */
  grow(total: number, span: number): void {
    this.total = total;
    this.span = Math.max(1, span);
    this.cache.clear();
    this.canvas.style.setProperty("height", `${Math.min(MAX_HEIGHT, total * ROW_HEIGHT)}px`);
    this.empty.hidden = total > 0;
    this.schedule();
  }

  private schedule(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; void this.draw(); });
  }

  /** The rows are closer to each other than their height if there are too many for one element. */
  private get scale(): number {
    const real = this.total * ROW_HEIGHT - this.element.clientHeight;
    const possible = Math.min(MAX_HEIGHT, this.total * ROW_HEIGHT) - this.element.clientHeight;
    return real > 0 && possible > 0 ? real / possible : 1;
  }

  private get top(): number { return this.element.scrollTop * this.scale; }

  private async draw(): Promise<void> {
    const version = this.version;
    const first = Math.max(0, Math.floor(this.top / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(this.total, Math.ceil((this.top + this.element.clientHeight) / ROW_HEIGHT) + OVERSCAN);
    let missing = false;
    for (let position = first; position < last && !missing; position++) missing = !this.cache.has(position);
    if (missing) {
      const rows = await ask<Row[]>({ ask: "rows", trace: this.trace, start: first, end: last });
      if (version !== this.version) return;
      rows.forEach((row, offset) => this.cache.set(first + offset, row));
      if (this.cache.size > 5000) for (const key of this.cache.keys()) if (key < first || key >= last) this.cache.delete(key);
    }
    this.place();
  }

  private place(): void {
    // read before anything is changed: a later read would make the browser lay out again
    const top = this.top;
    const shift = this.element.scrollTop - top;
    const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(this.total, Math.ceil((top + this.element.clientHeight) / ROW_HEIGHT) + OVERSCAN);
    for (const [position, element] of this.drawn) {
      if (position < first || position >= last) {
        element.remove();
        this.drawn.delete(position);
      }
    }
    for (let position = first; position < last; position++) {
      const row = this.cache.get(position);
      if (!row) continue;
      let element = this.drawn.get(position);
      if (!element || element.dataset.stamp !== this.stamp(row)) {
        element?.remove();
        element = this.render(row, position);
        this.drawn.set(position, element);
        this.canvas.append(element);
      }
      element.style.setProperty("transform", `translateY(${position * ROW_HEIGHT + shift}px)`);
      const selected = row.index === this.selected;
      element.setAttribute("aria-selected", String(selected));
      if (selected) this.element.setAttribute("aria-activedescendant", element.id);
    }
  }

  private render(row: Row, position: number): HTMLElement {
    const bar = h("span", { class: "bar" });
    bar.style.setProperty("left", `${Math.min(99, (100 * row.ts) / this.span)}%`);
    bar.style.setProperty("width", `${Math.max(0.5, (100 * Math.max(0, row.duration)) / this.span)}%`);
    const element = h("div", {
      class: `row ${row.kind} ${row.status}`, role: "option", id: `row-${position}`,
      aria: { setsize: this.total, posinset: position + 1 }, data: { position, index: row.index, stamp: this.stamp(row) },
      title: visible(`${row.name}\n${row.title} ${row.text}`),
    },
      h("span", { class: "mark", aria: row.status ? { label: { ok: "passed", fail: "failed", warn: "warning" }[row.status] } : { hidden: true } }, MARKS[row.status]),
      h("span", { class: "label" }, h("b", {}, visible(row.title)), " ", h("span", { class: "rest" }, visible(row.text))),
      h("span", { class: "who" }, visible(row.who)),
      h("span", { class: "tokens" }, row.tokens ? `${row.tokens.toLocaleString("en")} tok` : money(row.cost)),
      h("span", { class: "time" }, duration(row.duration)),
      h("span", { class: "waterfall", aria: { hidden: true } }, bar));
    element.style.setProperty("--depth", String(row.depth));
    return element;
  }

  /** What the element of a row depends on: it is made again if a part of it changes. */
  private stamp(row: Row): string {
    return `${row.index} ${row.pair} ${row.status} ${row.text.length} ${this.total} ${this.span}`;
  }

  private onClick(event: Event): void {
    const row = (event.target as Element).closest<HTMLElement>(".row");
    if (row) this.select(Number(row.dataset.position), Number(row.dataset.index), false);
  }

  private select(position: number, index: number, focus: boolean): void {
    this.position = position;
    this.mark(index);
    this.onSelect(index, focus);
  }

  mark(index: number): void {
    this.selected = index;
    if (index < 0) {
      this.position = -1;
      this.element.removeAttribute("aria-activedescendant");
    }
    this.place();
  }

  /** Select the row at a position of the selection. */
  async go(position: number, focus = false): Promise<void> {
    if (!this.total) return;
    const wanted = Math.max(0, Math.min(this.total - 1, position));
    let row = this.cache.get(wanted);
    if (!row) [row] = await ask<Row[]>({ ask: "rows", trace: this.trace, start: wanted, end: wanted + 1 });
    if (!row) return;
    this.cache.set(wanted, row);
    this.reveal(wanted);
    this.select(wanted, row.index, focus);
  }

  reveal(position: number): void {
    const [top, bottom] = [position * ROW_HEIGHT, (position + 1) * ROW_HEIGHT];
    const height = this.element.clientHeight;
    if (top < this.top) this.element.scrollTop = top / this.scale;
    else if (bottom > this.top + height) this.element.scrollTop = (bottom - height + ROW_HEIGHT) / this.scale;
    this.schedule();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_HEIGHT) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    void this.go(step === -Infinity ? 0 : step === Infinity ? this.total - 1 : this.position + step);
  }

  private printed: Row[] = [];

  /** Ask for the rows in advance: a browser does not wait before it prints. */
  async preparePrint(): Promise<void> {
    this.printed = await ask<Row[]>({ ask: "rows", trace: this.trace, start: 0, end: PRINTED });
    this.element.dataset.printable = String(this.printed.length);
  }

  /** All rows as elements, for paper. */
  printable(): HTMLElement {
    const rows = this.printed;
    const limit = PRINTED;
    const more = this.total > limit ? h("p", {}, `… and ${this.total - limit} more events`) : null;
    return h("div", { class: "print-list" }, ...rows.map((row, position) => this.render(row, position)), more);
  }
}
