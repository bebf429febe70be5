// Two traces or two runs side by side.

import { button, h, visible } from "./dom.ts";
import { diffTexts, pretty } from "./diff.ts";
import { type Data, compact, isRecord, records, shorten, str } from "./events.ts";
import { groupCases, percent, ratePlot, whyTrial } from "./overview.ts";
import type { PageInfo, RunInfo } from "./store.ts";
import { tree } from "./tree.ts";

export function hasComparison(info: PageInfo): boolean {
  return info.comparison !== null || info.runs.length === 2;
}

export function renderComparison(info: PageInfo, open: (trace: number, index: number) => void): HTMLElement {
  const box = h("div", { class: "overview compare", id: "compare", tabindex: -1 });
  if (isRecord(info.comparison)) box.append(renderAlignment(info.comparison, info, open));
  else if (info.comparison) box.append(tree(info.comparison));
  const [before, after] = info.runs;
  if (before && after) box.append(renderRuns(before, after));
  return box;
}

/** The aligned steps of two traces: equal ones are folded, the first difference is marked. */
function renderAlignment(comparison: Data, info: PageInfo, open: (trace: number, index: number) => void): HTMLElement {
  const rows = records(comparison.steps);
  const names = [0, 1].map((side) => visible(info.traces[side]?.name ?? (side ? "after" : "before")));
  const box = h("section", {}, h("h2", {}, `${names[0]} beside ${names[1]}`));
  const first = rows.findIndex((row) => str(row.status) !== "same");
  box.append(h("p", {}, first < 0 ? `The traces are the same: ${rows.length} steps.` : `${first} steps are the same; the first difference is step ${first + 1}.`));
  const body = h("tbody", {});
  const cell = (row: Data, side: "left" | "right", trace: number) => {
    const step = isRecord(row[side]) ? row[side] : null;
    if (!step) return h("td", { class: "faint" }, "—");
    const index = Number(step.index ?? -1);
    const label = visible(str(step.title) || shorten(compact(step), 160));
    return h("td", {}, index >= 0 ? button(label, () => open(trace, index), { class: "link" }) : label);
  };
  const add = (row: Data, at: number) => {
    const status = str(row.status);
    body.append(h("tr", { class: `${status}${at === first ? " divergence" : ""}`, id: at === first ? "divergence" : undefined },
      h("td", {}, at === first ? h("b", {}, "first difference") : status), cell(row, "left", 0), cell(row, "right", 1)));
    if (status === "changed" && isRecord(row.left) && isRecord(row.right)) {
      body.append(h("tr", {}, h("td", {}), h("td", { colspan: 2 }, diffTexts(pretty(row.left.value ?? row.left), pretty(row.right.value ?? row.right)))));
    }
  };
  for (let at = 0; at < rows.length; at++) {
    const from = at;
    while (at < rows.length && str(rows[at]!.status) === "same") at++;
    if (at - from > 4) {
      const hidden = rows.slice(from, at);
      const more = h("tr", { class: "folded" }, h("td", { colspan: 3 }, button(`… ${hidden.length} equal steps`, () => {
        const rest = [...body.children].slice([...body.children].indexOf(more) + 1);
        more.remove();
        for (const each of rest) each.remove();
        hidden.forEach((row, offset) => add(row, from + offset));
        body.append(...rest);
      }, { class: "more" })));
      body.append(more);
    } else for (let each = from; each < at; each++) add(rows[each]!, each);
    if (at < rows.length) add(rows[at]!, at);
  }
  box.append(h("div", { class: "scroll-x" }, h("table", { class: "table aligned" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), h("th", { scope: "col" }, names[0]!), h("th", { scope: "col" }, names[1]!))), body)));
  return box;
}

/** The cases of two runs: the pass rates, their intervals and what changed. */
function renderRuns(before: RunInfo, after: RunInfo): HTMLElement {
  const [old, now] = [groupCases(before), groupCases(after)];
  const ids = [...new Set([...now, ...old].map((row) => row.id))];
  const rows = ids.map((id) => {
    const [a, b] = [old.find((row) => row.id === id), now.find((row) => row.id === id)];
    const delta = a && b ? b.passes / b.trials.length - a.passes / a.trials.length : 0;
    const word = !a ? "new" : !b ? "gone" : delta < 0 ? "worse" : delta > 0 ? "better" : "same";
    return { id, a, b, delta, word };
  }).sort((x, y) => x.delta - y.delta);
  const total = (word: string) => rows.filter((row) => row.word === word).length;
  return h("section", {}, h("h2", {}, visible(`${before.name} beside ${after.name}`)),
    h("p", {}, `${total("worse")} worse, ${total("better")} better, ${total("same")} the same, ${total("new")} new, ${total("gone")} gone`),
    h("div", { class: "scroll-x" }, h("table", { class: "table" },
      h("thead", {}, h("tr", {}, ...["Case", "Change", "Before", "95 % interval", "After", "95 % interval", "Why, after"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...rows.slice(0, 2000).map(({ id, a, b, delta, word }) => h("tr", { class: word === "worse" ? "fail" : word === "better" ? "ok" : "" },
        h("td", {}, visible(b?.label || a?.label || id)),
        h("td", {}, h("b", { class: word === "worse" ? "fail" : word === "better" ? "ok" : "" }, word), delta ? ` ${delta > 0 ? "+" : "−"}${percent(Math.abs(delta))}` : ""),
        h("td", { class: "number" }, a ? `${a.passes} of ${a.trials.length}` : "—"), h("td", {}, a ? ratePlot(a.passes, a.trials.length) : "—"),
        h("td", { class: "number" }, b ? `${b.passes} of ${b.trials.length}` : "—"), h("td", {}, b ? ratePlot(b.passes, b.trials.length) : "—"),
        h("td", { class: "why-cell" }, visible(whyTrial(b?.trials.find((trial) => trial.status !== "pass"))))))))));
}
