// The tracks of the time line: which events are on each, and the marks of a track.

import type { Kind } from "./events.ts";

export const TRACKS = ["agent", "model", "tools", "mcp", "http", "people", "hosts", "files", "cells", "checks"] as const;
export type Track = (typeof TRACKS)[number];

export const TRACK_LABELS: Record<Track, string> = {
  agent: "Agent", model: "Model", tools: "Tools", mcp: "MCP", http: "HTTP", people: "People",
  hosts: "Hosts", files: "Files", cells: "Cells", checks: "Checks",
};

/** The kind of events whose colour a track has. */
export const TRACK_KINDS: Record<Track, Kind> = {
  agent: "turn", model: "model", tools: "tool", mcp: "step", http: "http", people: "ui",
  hosts: "host", files: "file", cells: "cell", checks: "check",
};

export const TRACK_OF: Record<Kind, Track> = {
  run: "agent", turn: "agent", hook: "agent", step: "agent", hat: "agent", other: "agent",
  model: "model", tool: "tools", http: "http", ui: "people", host: "hosts", process: "hosts",
  file: "files", cell: "cells", fault: "checks", check: "checks",
};

/** What a column of a track shows: the highest of its events. */
export const MARK = { none: 0, lasts: 1, begins: 2, warns: 3, fails: 4 } as const;

/** The tracks that have events, and a mark for each of their columns, track by track. */
export interface TrackMarks {
  tracks: Track[];
  marks: Uint8Array;
  byTime: boolean; // otherwise by the order of the events
}
