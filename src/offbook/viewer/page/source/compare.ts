// Two traces or two runs side by side.

import { button, count, h, textBlock, visible } from "./dom.ts";
import { diffTexts, pretty } from "./diff.ts";
import { type Data, isRecord, list, records, shorten, str } from "./events.ts";
import { type CaseRow, groupCases, percent, ratePlot } from "./case_rows.ts";
import { whyTrial } from "./overview.ts";
import { renderDifferences } from "./results.ts";
import type { PageInfo, RunInfo } from "./store.ts";

export function hasComparison(info: PageInfo): boolean {
  return isRecord(info.comparison) || info.runs.length === 2;
}

export type OpenStep = (trace: number, seq: number) => void;

export function renderComparison(info: PageInfo, open: OpenStep): HTMLElement {
  const box = h("div", { class: "overview compare", id: "compare", tabindex: -1 });
  const { comparison } = info;
  if (isRecord(comparison)) {
    const names = [str(comparison.before) || "before", str(comparison.after) || "after"].map(visible) as [string, string];
    const only = [...list(comparison.only_before).map((name) => `only in ${names[0]}: ${visible(str(name))}`), ...list(comparison.only_after).map((name) => `only in ${names[1]}: ${visible(str(name))}`)];
    for (const line of only) box.append(h("p", { class: "remark" }, line));
    const traces = records(comparison.traces).sort((a, b) => Number(a.same === true) - Number(b.same === true));
    for (const trace of traces) box.append(renderAlignment(trace, names, info, open));
  }
  const [before, after] = info.runs;
  if (before && after) box.append(renderRuns(before, after));
  return box;
}

/** The aligned events of two traces: equal ones are folded, the first divergence is marked. */
function renderAlignment(comparison: Data, names: [string, string], info: PageInfo, open: OpenStep): HTMLElement {
  const rows = records(comparison.rows);
  const first = typeof comparison.first_divergence === "number" ? comparison.first_divergence : -1;
  const sides = ["before", "after"].map((side) => info.traces.findIndex((trace) => trace.parameters?.side === side && trace.parameters.pair === comparison.name)) as [number, number];
  const differences = isRecord(comparison.differences) ? Object.entries(comparison.differences).map(([kind, number]) => `${str(number)} ${kind}`).join(", ") : "";
  const box = h("section", {}, h("h2", {}, visible(str(comparison.name))),
    h("p", {}, first < 0 ? `The traces are the same: ${count(rows.length, "event")}.` : `${count(first, "event")} equal, then the first divergence. Differences: ${differences}.`),
    renderFigures(comparison.figures));
  const body = h("tbody", {});
  const cell = (row: Data, side: "before" | "after", trace: number) => {
    const step = isRecord(row[side]) ? row[side] : null;
    if (!step) return h("td", { class: "faint" }, "—");
    const label = visible(shorten(str(step.title), 200) || str(step.event));
    return h("td", {}, trace >= 0 ? button(label, () => open(trace, Number(step.seq)), { class: "link" }) : label);
  };
  const make = (row: Data, at: number): HTMLElement[] => {
    const state = str(row.state);
    const made = [h("tr", { class: `${state}${at === first ? " divergence" : ""}`, id: at === first ? "divergence" : undefined },
      h("td", {}, at === first ? h("b", {}, `first divergence: ${visible(state)}`) : visible(state)), cell(row, "before", sides[0]), cell(row, "after", sides[1]))];
    const changes = records(row.changes);
    if (changes.length) {
      made.push(h("tr", { class: "changes" }, h("td", {}), h("td", { colspan: 2 }, ...changes.slice(0, 20).map((change) => h("div", {}, h("h4", {}, h("code", {}, visible(str(change.path)) || "value"), change.missing ? ` only ${change.missing === "before" ? "after" : "before"}` : ""),
        change.missing ? textBlock(pretty(change.missing === "before" ? change.after : change.before)) : diffTexts(pretty(change.before), pretty(change.after), names))))));
    }
    return made;
  };
  for (let at = 0; at < rows.length; at++) {
    const from = at;
    while (at < rows.length && (rows[at]!.state === "same" || rows[at]!.state === "moved")) at++;
    const equal = rows.slice(from, at);
    if (equal.length > 4) {
      const more: HTMLElement = h("tr", { class: "folded" }, h("td", { colspan: 3 }, button(`… ${equal.length} equal events`, () => more.replaceWith(...equal.flatMap((row, offset) => make(row, from + offset))), { class: "more" })));
      body.append(more);
    } else body.append(...equal.flatMap((row, offset) => make(row, from + offset)));
    if (at < rows.length) body.append(...make(rows[at]!, at));
  }
  box.append(h("div", { class: "scroll-x", role: "group", tabindex: 0, aria: { label: "table" } }, h("table", { class: "table aligned" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "state"), h("th", { scope: "col" }, names[0]), h("th", { scope: "col" }, names[1]))), body)));
  return box;
}

function renderFigures(figures: unknown): HTMLElement | null {
  if (!isRecord(figures) || !isRecord(figures.before) || !isRecord(figures.after)) return null;
  const { before, after } = figures;
  const names = Object.keys(before).filter((name) => isRecord(before) && isRecord(after) && (before[name] || after[name]));
  return h("dl", { class: "facts-list" }, ...names.map((name) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, `${str((before as Data)[name] ?? "—")} → ${str((after as Data)[name] ?? "—")}`))));
}

/** The cases of two runs: the pass rates, their intervals and what changed. */
function renderRuns(before: RunInfo, after: RunInfo): HTMLElement {
  const [old, now] = [groupCases(before), groupCases(after)];
  const ids = [...new Set([...now, ...old].map((row) => row.id))];
  const [olds, nows] = [old, now].map((rows) => new Map(rows.map((row) => [row.id, row]))) as [Map<string, CaseRow>, Map<string, CaseRow>];
  const rows = ids.map((id) => {
    const [a, b] = [olds.get(id), nows.get(id)];
    const delta = a && b ? b.passes / b.trials.length - a.passes / a.trials.length : 0;
    const word = !a ? "new" : !b ? "gone" : delta < 0 ? "worse" : delta > 0 ? "better" : "same";
    return { id, a, b, delta, word };
  }).sort((x, y) => x.delta - y.delta);
  const total = (word: string) => rows.filter((row) => row.word === word).length;
  return h("section", {}, h("h2", {}, visible(`${before.name} beside ${after.name}`)),
    h("p", {}, `${total("worse")} worse, ${total("better")} better, ${total("same")} the same, ${total("new")} new, ${total("gone")} gone`),
    renderDifferences(after.differences),
    h("div", { class: "scroll-x", role: "group", tabindex: 0, aria: { label: "table" } }, h("table", { class: "table" },
      h("thead", {}, h("tr", {}, ...["Case", "Change", "Before", "95 % interval", "After", "95 % interval", "Why, after"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...rows.slice(0, 2000).map(({ id, a, b, delta, word }) => h("tr", { class: word === "worse" ? "fail" : word === "better" ? "ok" : "" },
        h("td", {}, visible(b?.label || a?.label || id)),
        h("td", {}, h("b", { class: word === "worse" ? "fail" : word === "better" ? "ok" : "" }, word), delta ? ` ${delta > 0 ? "+" : "−"}${percent(Math.abs(delta))}` : ""),
        h("td", { class: "number" }, a ? `${a.passes} of ${a.trials.length}` : "—"), h("td", {}, a ? ratePlot(a.passes, a.trials.length) : "—"),
        h("td", { class: "number" }, b ? `${b.passes} of ${b.trials.length}` : "—"), h("td", {}, b ? ratePlot(b.passes, b.trials.length) : "—"),
        h("td", { class: "why-cell" }, visible(whyTrial(b?.trials.find((trial) => trial.status !== "pass"))))))))));
}
