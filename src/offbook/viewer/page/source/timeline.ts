// The time line: a track for the model, the tools, MCP, HTTP, people, hosts, files and cells. It
// shows the whole run, however long it is; a click opens an event, dragging keeps a range.

import { ask } from "./client.ts";
import { clear, h } from "./dom.ts";
import { MARK, TRACK_KINDS, TRACK_LABELS, type Track, type TrackMarks } from "./tracks.ts";

const TRACK_HEIGHT = 14;
const COLUMN = 3; // pixels
const CLICK = 0.004; // of the width: a shorter drag is a click

export interface TimelineActions {
  open: (index: number) => void;
  keep: (from: number, to: number) => void; // a range, as shares of the width; -1: all
}

export class Timeline {
  private readonly names = h("ol", { class: "track-names", aria: { label: "Tracks" } });
  private readonly canvas = h("canvas", { class: "strip", role: "img", aria: { label: "The run over time. Click an event, drag to keep a range, double-click to clear it." } });
  readonly element = h("div", { class: "timeline" }, this.names, this.canvas);
  private trace = 0;
  private tracks: Track[] = [];
  private range: [number, number] = [-1, -1];
  private selected = -1; // an event

  constructor(private readonly actions: TimelineActions) {
    new ResizeObserver(() => void this.draw()).observe(this.canvas);
    this.listen();
  }

  /** Draw a trace; `selected` is the open event, or -1. */
  show(trace: number, selected: number, from: number, to: number): Promise<void> {
    [this.trace, this.selected, this.range] = [trace, selected, [from, to]];
    return this.draw();
  }

  async draw(): Promise<void> {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const columns = Math.max(10, Math.floor(width / COLUMN));
    const found = await ask<TrackMarks | null>({ ask: "tracks", trace: this.trace, columns });
    if (!found) return;
    const place = this.selected < 0 ? -1 : await ask<number>({ ask: "place", trace: this.trace, index: this.selected });
    if (found.tracks.join() !== this.tracks.join()) {
      this.tracks = found.tracks;
      clear(this.names, ...found.tracks.map((track) => h("li", { class: TRACK_KINDS[track] }, TRACK_LABELS[track])));
    }
    const height = Math.max(1, found.tracks.length) * TRACK_HEIGHT + 2;
    const scale = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.style.setProperty("height", `${height}px`);
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.dataset.scale = found.byTime ? "time" : "order";
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(`--${name}`) || "gray";
    found.tracks.forEach((track, row) => {
      const marks = found.marks.subarray(row * columns, (row + 1) * columns);
      const own = colour(TRACK_KINDS[track]);
      marks.forEach((mark, column) => {
        if (mark === MARK.none) return;
        context.fillStyle = mark === MARK.fails ? colour("fail") : mark === MARK.warns ? colour("warn") : own;
        context.globalAlpha = mark === MARK.lasts ? 0.4 : 1;
        const width_ = mark === MARK.lasts ? width / columns + 0.5 : COLUMN - 0.5;
        context.fillRect(column * (width / columns), row * TRACK_HEIGHT + 4, width_, TRACK_HEIGHT - 6);
      });
    });
    context.globalAlpha = 1;
    const [from, to] = this.range;
    if (from >= 0) {
      context.fillStyle = colour("range");
      context.fillRect(from * width, 0, Math.max(2, (to - from) * width), height);
    }
    if (place >= 0) {
      context.fillStyle = colour("text");
      context.fillRect(Math.min(width - 1, place * width), 0, 1.5, height);
    }
  }

  private listen(): void {
    let begin = -1;
    const share = (event: PointerEvent) => Math.max(0, Math.min(1, event.offsetX / this.canvas.clientWidth));
    this.canvas.addEventListener("pointerdown", (event) => { begin = share(event); this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointerup", (event) => {
      const [from, to] = [begin, share(event)].sort((a, b) => a - b) as [number, number];
      if (begin < 0) return;
      begin = -1;
      if (to - from > CLICK) return this.actions.keep(from, to);
      const track = this.tracks[Math.floor(event.offsetY / TRACK_HEIGHT)];
      void ask<number>({ ask: "nearest", trace: this.trace, share: to, track: track ?? "" }).then((index) => { if (index >= 0) this.actions.open(index); });
    });
    this.canvas.addEventListener("dblclick", () => this.actions.keep(-1, -1));
  }
}
