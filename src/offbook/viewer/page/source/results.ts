// The results of an eval run: tables that can be sorted, slices, and the distribution of a metric.

import { type CaseRow, percent, ratePlot } from "./case_rows.ts";
import { button, count, duration, h, money, visible } from "./dom.ts";
import { type Data, isRecord, str } from "./events.ts";
import type { RunInfo } from "./store.ts";

type Cell = Node | string | null;
export interface Column<Row> { name: string; cell: (row: Row) => Cell; value?: (row: Row) => number | string; number?: boolean; className?: string }
export interface Chosen { key: string; value: string } // the slice that the table of cases shows

const SHOWN = 2000; // rows; a filter or another order shows the others
const BINS = 12;
const MAX_SLICES = 40; // a key with more values names cases, and no slices

/** A table whose rows are sorted by the column whose head is pressed; a second time, the other way. */
export function sortableTable<Row>(rows: Row[], columns: Column<Row>[], classOf: (row: Row) => string, className: string): HTMLElement {
  const body = h("tbody", {});
  const rest = h("p", { class: "faint" });
  const draw = (order: Row[]) => {
    body.replaceChildren(...order.slice(0, SHOWN).map((row) => h("tr", { class: classOf(row) }, ...columns.map((column) => h("td", { class: column.className ?? (column.number ? "number" : "") }, column.cell(row))))));
    rest.textContent = order.length > SHOWN ? `… and ${count(order.length - SHOWN, "more row")}` : "";
  };
  const heads = columns.map((column) => {
    const { value } = column;
    const head = h("th", { scope: "col" });
    if (!value) head.append(column.name);
    else head.append(button(column.name, () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      draw([...rows].sort((a, b) => compareValues(value(a), value(b)) * (down ? -1 : 1)));
    }, { class: "sort", title: `Sort by ${column.name}` }));
    return head;
  });
  draw(rows);
  return h("div", {}, h("div", { class: "scroll-x", role: "group", tabindex: 0, aria: { label: "table" } }, h("table", { class: `table ${className}` }, h("thead", {}, h("tr", {}, ...heads)), body)), rest);
}

function compareValues(one: number | string, other: number | string): number {
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
}

// --- Metrics

export interface Metric { name: string; of: (trial: Data) => number | null; show: (value: number) => string }

const metric = (key: string) => (trial: Data) => isRecord(trial.metrics) && typeof trial.metrics[key] === "number" ? trial.metrics[key] : null;

export const METRICS: Metric[] = [
  { name: "Score", of: scoreOf, show: (value) => value.toFixed(2) },
  { name: "Latency", of: (trial) => metric("latency_ms")(trial) ?? (typeof trial.millis === "number" ? trial.millis : null), show: duration },
  { name: "Cost", of: metric("cost_usd"), show: (value) => money(value) || "$0" },
  { name: "Tokens", of: metric("tokens"), show: (value) => Math.round(value).toLocaleString("en") },
];

/** The mean of all scores of a trial: of each judged rubric and criterion. */
function scoreOf(trial: Data): number | null {
  const scores = isRecord(trial.scores) ? Object.values(trial.scores).filter((score): score is number => typeof score === "number") : [];
  return scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : metric("score")(trial);
}

export function mean(trials: Data[], of: Metric["of"]): number | null {
  const known = trials.map(of).filter((value): value is number => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** A column for each metric that a trial of the run has. */
export function metricColumns<Row>(trials: Data[], trialsOf: (row: Row) => Data[]): Column<Row>[] {
  return METRICS.filter(({ of }) => trials.some((trial) => of(trial) !== null)).map(({ name, of, show }) => ({
    name, number: true,
    value: (row) => mean(trialsOf(row), of) ?? -1,
    cell: (row) => { const value = mean(trialsOf(row), of); return value === null ? "" : show(value); },
  }));
}

// --- Slices

export function valueOf(row: CaseRow, key: string): string | null {
  const metadata = row.trials[0]?.metadata;
  const value = isRecord(metadata) ? metadata[key] : undefined;
  return value === undefined || value === null ? null : typeof value === "object" ? JSON.stringify(value) : str(value);
}

/** A table for each key of metadata with a few values; a value shows the cases of its slice. */
export function renderSlices(run: RunInfo, rows: CaseRow[], choose: (slice: Chosen) => void): HTMLElement | null {
  const keys = [...new Set(rows.flatMap((row) => isRecord(row.trials[0]?.metadata) ? Object.keys(row.trials[0].metadata) : []))];
  const tables = keys.map((key) => {
    const slices = new Map<string, CaseRow[]>();
    for (const row of rows) {
      const value = valueOf(row, key);
      if (value !== null) slices.set(value, [...(slices.get(value) ?? []), row]);
    }
    if (slices.size > MAX_SLICES) return null;
    const passed = (slice: CaseRow[]) => slice.filter((row) => row.passes === row.trials.length).length;
    const columns: Column<[string, CaseRow[]]>[] = [
      { name: key, value: ([value]) => value, cell: ([value]) => button(visible(value), () => choose({ key, value }), { class: "link", data: { focus: `slice ${key} ${value}` } }) },
      { name: "Passed", number: true, value: ([, slice]) => passed(slice), cell: ([, slice]) => `${passed(slice)} of ${slice.length}` },
      { name: "Pass rate", number: true, value: ([, slice]) => passed(slice) / slice.length, cell: ([, slice]) => percent(passed(slice) / slice.length) },
      { name: "95 % interval", cell: ([, slice]) => ratePlot(passed(slice), slice.length) },
      ...metricColumns<[string, CaseRow[]]>(run.cases, ([, slice]) => slice.flatMap((row) => row.trials)),
    ];
    return sortableTable([...slices], columns, ([, slice]) => (passed(slice) === slice.length ? "ok" : "fail"), "slices");
  }).filter((table) => table !== null);
  return tables.length ? h("section", {}, h("h3", {}, "Slices"), ...tables) : null;
}

// --- Distributions

/** A histogram of each metric with more than one value. */
export function renderDistributions(trials: Data[]): HTMLElement | null {
  const plots = METRICS.map(({ name, of, show }) => {
    const values = trials.map(of).filter((value): value is number => value !== null);
    const [low, high] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
    return values.length > 1 && high > low ? histogram(name, values, low, high, show) : null;
  }).filter((plot) => plot !== null);
  return plots.length ? h("section", {}, h("h3", {}, "Distributions"), h("div", { class: "histograms" }, ...plots)) : null;
}

function histogram(name: string, values: number[], low: number, high: number, show: (value: number) => string): HTMLElement {
  const bins = new Array<number>(BINS).fill(0);
  for (const value of values) bins[Math.min(BINS - 1, Math.floor(((value - low) / (high - low)) * BINS))]!++;
  const most = Math.max(...bins);
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number) => show(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!);
  const words = `${name}: ${show(low)} to ${show(high)}, half of the trials up to ${at(0.5)}, 95 % up to ${at(0.95)}`;
  const bars = bins.map((number, index) => {
    const bar = h("span", { class: "histogram-bar", title: `${show(low + ((high - low) * index) / BINS)} to ${show(low + ((high - low) * (index + 1)) / BINS)}: ${count(number, "trial")}` });
    bar.style.setProperty("height", `${(number / most) * 100}%`);
    return bar;
  });
  return h("figure", { class: "histogram" }, h("div", { class: "histogram-bars", role: "img", aria: { label: words } }, ...bars), h("figcaption", {}, words));
}

// --- The difference of two runs

/** The differences of the means of two runs, with their intervals, as `offbook eval compare` has them. */
export function renderDifferences(differences: unknown): HTMLElement | null {
  if (!isRecord(differences)) return null;
  const rows = Object.entries(differences).filter((entry): entry is [string, Data] => isRecord(entry[1]));
  if (!rows.length) return null;
  const figure = (value: unknown) => `${Number(value) > 0 ? "+" : ""}${Number(Number(value).toPrecision(4))}`;
  const columns: Column<[string, Data]>[] = [
    { name: "Metric", value: ([name]) => name, cell: ([name]) => visible(name.replaceAll("_", " ")) },
    { name: "Difference", number: true, value: ([, item]) => Number(item.mean), cell: ([, item]) => figure(item.mean) },
    { name: "95 % interval", number: true, cell: ([, item]) => `${figure(item.low)} to ${figure(item.high)}` },
    { name: "p", number: true, value: ([, item]) => Number(item.p_value), cell: ([, item]) => Number(item.p_value).toFixed(3) },
    { name: "", cell: ([, item]) => (item.significant === true ? "significant" : "") },
  ];
  return h("section", {}, h("h3", {}, "Differences of the means, case by case"), sortableTable(rows, columns, ([, item]) => (item.significant === true && Number(item.mean) < 0 ? "fail" : ""), "differences"));
}
