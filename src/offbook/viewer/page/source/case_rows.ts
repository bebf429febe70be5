// The cases of an eval run, each with its trials, and how a pass rate is shown.

import { h } from "./dom.ts";
import { type Data, str } from "./events.ts";
import type { RunInfo } from "./store.ts";

export interface CaseRow {
  id: string;
  label: string;
  severity: string;
  trials: Data[];
  passes: number;
}

export function groupCases(run: RunInfo): CaseRow[] {
  const rows = new Map<string, CaseRow>();
  for (const trial of run.cases) {
    const id = trial.pack ? `${str(trial.pack)}/${str(trial.id)}` : str(trial.id); // two packs may have the same id
    const row = rows.get(id) ?? { id, label: str(trial.label), severity: str(trial.severity), trials: [], passes: 0 };
    row.trials.push(trial);
    if (trial.status === "pass") row.passes++;
    rows.set(id, row);
  }
  return [...rows.values()];
}

/** The interval of Wilson for a pass rate, at 95 %. */
export function wilson(passes: number, trials: number): [number, number] {
  if (!trials) return [0, 1];
  const z = 1.959964;
  const rate = passes / trials;
  const centre = rate + (z * z) / (2 * trials);
  const margin = z * Math.sqrt((rate * (1 - rate)) / trials + (z * z) / (4 * trials * trials));
  const scale = 1 + (z * z) / trials;
  return [Math.max(0, (centre - margin) / scale), Math.min(1, (centre + margin) / scale)];
}

export function percent(rate: number): string {
  return `${(rate * 100).toFixed(rate === 0 || rate === 1 ? 0 : 1)} %`;
}

/** A rate with its interval, as a small plot with its numbers as its label. */
export function ratePlot(passes: number, trials: number): HTMLElement {
  const [low, high] = wilson(passes, trials);
  const rate = trials ? passes / trials : 0;
  const range = h("span", { class: "plot-range" });
  range.style.setProperty("left", `${low * 100}%`);
  range.style.setProperty("width", `${(high - low) * 100}%`);
  const point = h("span", { class: "plot-point" });
  point.style.setProperty("left", `${rate * 100}%`);
  return h("span", { class: "plot", role: "img", aria: { label: `${percent(rate)}, between ${percent(low)} and ${percent(high)}` }, title: `${percent(low)} to ${percent(high)} (95 %)` }, range, point);
}
