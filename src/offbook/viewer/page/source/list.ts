// The list of events: only the rows in sight are elements, and the elements are reused, so a
// million events scroll smoothly.

import { duration, h, money, visible } from "./dom.ts";
import { ask } from "./client.ts";
import type { Row } from "./store.ts";

export const ROW_HEIGHT = 28;
const MAX_HEIGHT = 15_000_000; // browsers limit the height of an element
const OVERSCAN = 12; // rows above and below the window
const BLOCK = 128; // rows are read from the worker in blocks
const MAX_BLOCKS = 64; // kept
const PRINTED = 2000; // rows on paper
export const MARKS = { ok: "✓", fail: "✗", warn: "!", "": "" } as const;
const STATUS_WORDS = { ok: "passed", fail: "failed", warn: "warning" } as const;

interface Block { rows: Row[]; age: number }

/** The element of a row. It shows one row after another while the list scrolls. */
class RowElement {
  private readonly mark = h("span", { class: "mark" });
  private readonly fold = h("span", { class: "fold", aria: { hidden: true } });
  private readonly title = h("b");
  private readonly rest = h("span", { class: "rest" });
  private readonly who = h("span", { class: "who" });
  private readonly tokens = h("span", { class: "tokens" });
  private readonly time = h("span", { class: "time" });
  private readonly bar = h("span", { class: "bar" });
  readonly element = h("div", { role: "treeitem", hidden: true }, this.mark,
    h("span", { class: "label" }, this.fold, this.title, " ", this.rest), this.who, this.tokens, this.time,
    h("span", { class: "waterfall", aria: { hidden: true } }, this.bar));
  private row: Row | null = null;
  private position = -1;
  private total = 0;
  private span = 0;
  private top = NaN;
  private selected: boolean | null = null;

  fill(row: Row, position: number, total: number, span: number): void {
    const { element } = this;
    if (position !== this.position) {
      this.position = position;
      element.id = `row-${position}`;
      element.dataset.position = String(position);
      element.setAttribute("aria-posinset", String(position + 1));
    }
    if (total !== this.total) {
      this.total = total;
      element.setAttribute("aria-setsize", String(total));
    }
    if (row !== this.row || span !== this.span) {
      const left = Math.min(97, (100 * row.ts) / span);
      this.bar.style.setProperty("left", `${left}%`);
      this.bar.style.setProperty("width", `${Math.min(100 - left, Math.max(0.5, (100 * Math.max(0, row.duration)) / span))}%`);
      this.span = span;
    }
    if (row === this.row) return;
    this.row = row;
    element.className = `row ${row.kind} ${row.status}`;
    element.dataset.index = String(row.index);
    element.title = visible(`${row.name}\n${row.title} ${row.text}`);
    element.style.setProperty("--depth", String(row.depth));
    element.setAttribute("aria-level", String(row.depth + 1));
    if (row.fold) element.setAttribute("aria-expanded", String(row.fold === "open"));
    else element.removeAttribute("aria-expanded");
    this.mark.textContent = MARKS[row.status];
    if (row.status) this.mark.setAttribute("aria-label", STATUS_WORDS[row.status]);
    else this.mark.removeAttribute("aria-label");
    this.title.textContent = visible(row.title);
    this.rest.textContent = visible(row.text);
    this.who.textContent = visible(row.who);
    this.tokens.textContent = row.tokens ? `${row.tokens.toLocaleString("en")} tok` : money(row.cost);
    this.time.textContent = duration(row.duration);
  }

  /** Show the row at a place of the list. */
  place(top: number, selected: boolean): void {
    if (this.element.hidden) this.element.hidden = false;
    if (top !== this.top) this.element.style.setProperty("top", `${top}px`);
    this.top = top;
    if (selected !== this.selected) this.element.setAttribute("aria-selected", String(selected));
    this.selected = selected;
  }

  hide(): void {
    if (this.element.hidden) return;
    this.row = null;
    this.element.hidden = true;
    this.element.className = "";
  }
}

export class EventList {
  readonly element: HTMLElement;
  private readonly canvas = h("div", { class: "list-canvas", role: "presentation" });
  private readonly empty = h("p", { class: "empty", hidden: true }, "No event matches. Press Escape in the search box to clear the filter.");
  private total = 0;
  private trace = 0;
  private span = 1;
  private blocks = new Map<number, Block>();
  private age = 0; // of the newest rows: a row changes when its end is read
  private asking = false;
  private lastFirst = 0;
  private down = true; // the direction of scrolling
  private pool: RowElement[] = [];
  private version = 0;
  private frame = 0;
  position = -1; // of the selected row in the selection
  selected = -1; // its event

  constructor(private readonly onSelect: (index: number, focus: boolean) => void, private readonly onFold: (index: number, close: boolean) => void) {
    this.element = h("div", {
      class: "list", id: "events", role: "tree", tabindex: 0, aria: { label: "Events of the trace" },
      on: { scroll: () => this.schedule(), keydown: (event) => this.onKey(event as KeyboardEvent), click: (event) => this.onClick(event) },
    }, this.canvas, this.empty);
    new ResizeObserver(() => this.schedule()).observe(this.element);
  }

  /** Show another selection of a trace. */
  show(trace: number, total: number, span: number): void {
    this.version++;
    this.trace = trace;
    this.blocks.clear();
    this.asking = false;
    for (const each of this.pool) each.hide();
    this.grow(total, span);
  }

  /** More events were added at the end. The rows in sight are read again: one may have ended. */
  grow(total: number, span: number): void {
    this.age++;
    this.span = Math.max(1, span);
    this.empty.hidden = total > 0;
    if (total !== this.total) this.canvas.style.setProperty("height", `${Math.min(MAX_HEIGHT, total * ROW_HEIGHT)}px`);
    this.total = total;
    this.schedule();
  }

  private schedule(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  /** The rows are closer to each other than their height if there are too many for one element. */
  private get scale(): number {
    const real = this.total * ROW_HEIGHT - this.element.clientHeight;
    const possible = Math.min(MAX_HEIGHT, this.total * ROW_HEIGHT) - this.element.clientHeight;
    return real > 0 && possible > 0 ? real / possible : 1;
  }

  private get top(): number { return this.element.scrollTop * this.scale; }

  private rowAt(position: number): Row | undefined {
    return this.blocks.get(Math.floor(position / BLOCK))?.rows[position % BLOCK];
  }

  private draw(): void {
    const [first, last] = this.place();
    this.down = first >= this.lastFirst;
    this.lastFirst = first;
    if (!this.asking) void this.readBlocks(first, last);
  }

  /** Ask for the rows in sight that are missing or old; then for those that come into sight next. */
  private async readBlocks(first: number, last: number): Promise<void> {
    const end = Math.ceil(this.total / BLOCK);
    const isCurrent = (block: number) => this.blocks.get(block)?.age === this.age;
    let [from, to] = [Math.floor(first / BLOCK), Math.min(end, Math.ceil(last / BLOCK))];
    while (from < to && isCurrent(from)) from++;
    while (from < to && isCurrent(to - 1)) to--;
    if (from >= to) {
      from = this.down ? Math.ceil(last / BLOCK) : Math.floor(first / BLOCK) - 1;
      to = from + 1;
      if (from < 0 || to > end || this.blocks.has(from)) return;
    }
    const { version, age } = this;
    this.asking = true;
    const rows = await ask<Row[]>({ ask: "rows", trace: this.trace, start: from * BLOCK, end: to * BLOCK });
    if (version !== this.version) return;
    this.asking = false;
    for (let block = from; block < to; block++) {
      this.blocks.delete(block); // the newest are last
      this.blocks.set(block, { rows: rows.slice((block - from) * BLOCK, (block - from + 1) * BLOCK), age });
    }
    for (const block of this.blocks.keys()) {
      if (this.blocks.size <= MAX_BLOCKS) break;
      this.blocks.delete(block);
    }
    this.schedule();
  }

  /** Place the elements of the rows in sight, and return their range. */
  private place(): [number, number] {
    // read before anything is changed: a later read would make the browser lay out again
    const top = this.top;
    const shift = this.element.scrollTop - top;
    const height = this.element.clientHeight;
    const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(this.total, Math.ceil((top + height) / ROW_HEIGHT) + OVERSCAN);
    const size = Math.ceil(height / ROW_HEIGHT) + 2 * OVERSCAN + 1;
    while (this.pool.length < size) {
      const made = new RowElement();
      this.pool.push(made);
      this.canvas.append(made.element);
    }
    const unused = new Set(this.pool);
    for (let position = first; position < last; position++) {
      const row = this.rowAt(position);
      if (!row) continue;
      const place = this.pool[position % this.pool.length]!;
      unused.delete(place);
      place.fill(row, position, this.total, this.span);
      const selected = row.index === this.selected;
      place.place(position * ROW_HEIGHT + shift, selected);
      if (selected) this.element.setAttribute("aria-activedescendant", place.element.id);
    }
    for (const each of unused) each.hide();
    return [first, last];
  }

  private onClick(event: Event): void {
    const row = (event.target as Element).closest<HTMLElement>(".row");
    if (!row) return;
    const expanded = row.getAttribute("aria-expanded");
    if (expanded && (event.target as Element).closest(".fold")) this.onFold(Number(row.dataset.index), expanded === "true");
    else this.select(Number(row.dataset.position), Number(row.dataset.index), false);
  }

  /** Close or open the selected row; an open row is left for the next, one inside for its parent. */
  private async turn(close: boolean): Promise<void> {
    const row = this.rowAt(this.position);
    if (!row) return;
    if (row.fold === (close ? "open" : "closed")) this.onFold(row.index, close);
    else if (!close && row.fold) await this.go(this.position + 1);
    else if (close) {
      const parent = await ask<number>({ ask: "parent", trace: this.trace, index: row.index });
      if (parent >= 0) await this.go(await ask<number>({ ask: "position", trace: this.trace, index: parent }));
    }
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
    this.position = wanted; // at once: the next key may come before the row is read
    const row = this.rowAt(wanted) ?? (await ask<Row[]>({ ask: "rows", trace: this.trace, start: wanted, end: wanted + 1 }))[0];
    if (!row || this.position !== wanted) return; // a later key chose another row
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
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      event.stopPropagation();
      return void this.turn(event.key === "ArrowLeft");
    }
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
    const { version, trace } = this;
    const printed: Row[] = [];
    for (let start = 0; start < Math.min(PRINTED, this.total); start += BLOCK) {
      printed.push(...await ask<Row[]>({ ask: "rows", trace, start, end: Math.min(PRINTED, start + BLOCK) }));
      if (version !== this.version) return;
    }
    this.printed = printed;
    this.element.dataset.printable = String(printed.length);
  }

  /** All rows as elements, for paper. */
  printable(): HTMLElement {
    const more = this.total > PRINTED ? h("p", {}, `… and ${this.total - PRINTED} more events`) : null;
    const rows = this.printed.map((row, position) => {
      const made = new RowElement();
      made.fill(row, position, this.total, this.span);
      made.place(0, false);
      return made.element;
    });
    return h("div", { class: "print-list" }, ...rows, more);
  }
}
