// A page with several traces, or an eval run: a table with the failures first.

import { breakable, count, disclosure, duration, h, money, visible } from "./dom.ts";
import { type CaseRow, groupCases, percent, ratePlot } from "./case_rows.ts";
import { renderCoverage } from "./coverage.ts";
import { type Data, isRecord, list, records, str } from "./events.ts";
import { outcomeBadge, reason } from "./summary.ts";
import { isSameFile, type PageInfo, type RunInfo, type TraceInfo } from "./store.ts";
import { renderCheck } from "./detail.ts";
import { type Chosen, type Column, metricColumns, renderDistributions, renderSlices, sortableTable, valueOf } from "./results.ts";
import { tree } from "./tree.ts";

/** One small square for each trial. */
export function trialMarks(trials: Data[], open: (trial: Data) => void): HTMLElement {
  return h("span", { class: "trials" }, ...trials.slice(0, 50).map((trial) => {
    const status = str(trial.status);
    const words = `trial ${str(trial.trial)}: ${status}`;
    return h("button", { type: "button", class: `trial ${status}`, title: words, aria: { label: words }, on: { click: () => open(trial) } }, status === "pass" ? "✓" : status === "no_data" ? "?" : "✗");
  }), trials.length > 50 ? ` +${trials.length - 50}` : null);
}

/** The trial that is open: it stays open while a run is followed. */
export interface OpenTrial { key: string }

export function renderOverview(info: PageInfo, opened: OpenTrial, openTrace: (trace: number) => void): HTMLElement {
  const box = h("div", { class: "overview", id: "overview", tabindex: -1 });
  for (const run of info.runs) box.append(renderRun(run, info, opened, openTrace));
  if (info.traces.length) box.append(renderTraces(info.traces, openTrace));
  const coverage = renderCoverage(info.coverage, true);
  if (coverage) box.append(coverage);
  if (!box.children.length) box.append(h("p", { class: "remark" }, "This page has no traces."));
  else box.append(h("p", { class: "faint keys-hint" }, "Keys: n the next failure, Tab and Enter open it, ] the traces one by one, ? all keys."));
  return box;
}

function renderTraces(traces: TraceInfo[], open: (trace: number) => void): HTMLElement {
  const rank = { failed: 0, unfinished: 1, "no verdict": 2, reading: 3, passed: 4 };
  const order = traces.map((trace, index) => ({ trace, index })).sort((a, b) => rank[a.trace.outcome] - rank[b.trace.outcome] || a.index - b.index);
  const counts = Object.entries(rank).map(([outcome]) => [outcome, traces.filter((trace) => trace.outcome === outcome).length] as const).filter(([, number]) => number);
  return h("section", {}, h("h2", {}, `${count(traces.length, "trace")}: ${counts.map(([outcome, number]) => `${number} ${outcome}`).join(", ")}`),
    h("div", { class: "scroll-x", role: "group", tabindex: 0, aria: { label: "table" } }, h("table", { class: "table traces" },
      h("thead", {}, h("tr", {}, ...["Outcome", "Trace", "Why", "Checks", "Model", "Tools", "Tokens", "Cost", "Time"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...order.slice(0, 2000).map(({ trace, index }) => h("tr", { class: trace.outcome === "failed" ? "fail" : "" },
        h("td", {}, outcomeBadge(trace.outcome)),
        h("td", {}, h("button", { type: "button", class: "link", data: { trace: index, focus: `trace ${index}` }, on: { click: () => open(index) } }, ...breakable(visible(trace.name) || "trace"))),
        h("td", { class: "why-cell" }, visible(reason(trace)).slice(0, 300)),
        h("td", { class: "number" }, Object.values(trace.checks).some(Boolean) ? `${trace.checks.pass + trace.checks.warn} of ${Object.values(trace.checks).reduce((sum, number) => sum + number, 0)}` : "none"),
        h("td", { class: "number" }, String(trace.replies)), h("td", { class: "number" }, String(trace.calls)),
        h("td", { class: "number" }, trace.tokensIn + trace.tokensOut ? (trace.tokensIn + trace.tokensOut).toLocaleString("en") : ""),
        h("td", { class: "number" }, money(trace.cost)), h("td", { class: "number" }, duration(trace.duration))))))));
}

export function traceOf(trial: Data, traces: TraceInfo[]): number {
  return traces.findIndex((trace) => isSameFile(str(trial.trace), trace.path));
}

function renderRun(run: RunInfo, info: PageInfo, opened: OpenTrial, openTrace: (trace: number) => void): HTMLElement {
  const { summary } = run;
  const passed = summary.pass === true;
  const rows = groupCases(run).sort((a, b) => a.passes / a.trials.length - b.passes / b.trials.length);
  const known = "pass" in summary;
  const facts = known ? `${str(summary.passed)} of ${str(summary.total)} cases passed${summary.flaky ? `, ${str(summary.flaky)} flaky` : ""}${summary.not_run ? `, ${str(summary.not_run)} not run` : ""}` : "the run has no summary: it was killed, or it still runs";
  const box = h("section", { class: "run" }, h("h2", {}, outcomeBadge(!known ? "unfinished" : passed ? "passed" : "failed"), ` ${visible(run.name)}`),
    h("p", {}, [facts, known ? `pass rate ${percent(Number(summary.pass_rate ?? 0))}` : "", money(Number(summary.cost_usd ?? 0)), summary.tokens ? `${Number(summary.tokens).toLocaleString("en")} tokens` : "", summary.seconds ? duration(Number(summary.seconds) * 1000) : "", summary.stopped ? `stopped: ${str(summary.stopped)}` : ""].filter(Boolean).map(visible).join(" · ")));
  const detail = h("div", { class: "case-detail" });
  const keyOf = (trial: Data) => `${run.name} ${str(trial.id)} ${str(trial.trial)}`;
  const show = (trial: Data) => detail.replaceChildren(renderTrial(trial, traceOf(trial, info.traces), openTrace));
  const open = (trial: Data) => {
    opened.key = keyOf(trial);
    show(trial);
    detail.scrollIntoView({ block: "nearest" });
  };
  const again = opened.key && run.cases.find((trial) => keyOf(trial) === opened.key);
  if (again) show(again);
  const bad = (row: CaseRow) => row.trials.find((trial) => trial.status !== "pass");
  const columns: Column<CaseRow>[] = [
    { name: "Case", value: (row) => row.label || row.id, cell: (row) => h("button", { type: "button", class: "link", data: { focus: `case ${row.id}` }, on: { click: () => open(bad(row) ?? row.trials[0]!) } }, visible(row.label || row.id)) },
    { name: "Passed", number: true, value: (row) => row.passes / row.trials.length, cell: (row) => `${row.passes} of ${row.trials.length} (${percent(row.passes / row.trials.length)})` },
    { name: "95 % interval", cell: (row) => ratePlot(row.passes, row.trials.length) },
    { name: "Trials", cell: (row) => trialMarks(row.trials, open) },
    ...metricColumns<CaseRow>(run.cases, (row) => row.trials),
    { name: "Trace", cell: (row) => traceLink(bad(row) ?? row.trials[0]!, info.traces, openTrace) },
    { name: "Severity", value: (row) => row.severity, cell: (row) => visible(row.severity) },
    { name: "Why", className: "why-cell", value: (row) => whyTrial(bad(row)), cell: (row) => visible(whyTrial(bad(row))) },
  ];
  const cases = h("div", {});
  const list = (chosen: Chosen | null) => {
    const shown = chosen ? rows.filter((row) => valueOf(row, chosen.key) === chosen.value) : rows;
    const all = chosen && h("button", { type: "button", class: "link", on: { click: () => list(null) } }, "show all");
    cases.replaceChildren(h("h3", {}, chosen ? visible(`Cases with ${chosen.key} = ${chosen.value} `) : "Cases", all ?? ""), sortableTable(shown, columns, (row) => (bad(row) ? "fail" : "ok"), "cases"));
  };
  list(null);
  const slices = renderSlices(run, rows, (chosen) => { list(chosen); cases.scrollIntoView({ block: "nearest" }); });
  box.append(...[slices, renderDistributions(run.cases), cases, detail].filter((part) => part !== null));
  return box;
}

/** The trace of a trial, one click away. */
function traceLink(trial: Data, traces: TraceInfo[], openTrace: (trace: number) => void): HTMLElement | null {
  if (!trial.trace) return null;
  const open = () => { const trace = traceOf(trial, traces); if (trace >= 0) openTrace(trace); };
  return h("button", { type: "button", class: "link", on: { click: open } }, "trace");
}

export function whyTrial(trial: Data | undefined): string {
  if (!trial) return "";
  const failed = records(trial.verdicts).find((verdict) => verdict.status !== "pass" && verdict.status !== "warn");
  const expected = typeof failed?.expected === "number" ? ` (expected ${failed.expected})` : "";
  const verdict = failed ? `${str(failed.check)}: ${str(failed.message).split("\n", 1)[0] || str(failed.status)}${expected}` : "";
  return (str(trial.error).split("\n", 1)[0] || verdict || str(trial.status)).slice(0, 300);
}

function renderTrial(trial: Data, trace: number, openTrace: (trace: number) => void): HTMLElement {
  const box = h("section", { class: "problem" }, h("h3", {}, visible(`${str(trial.label) || str(trial.id)} · trial ${str(trial.trial)} · ${str(trial.status)}`)));
  if (trace >= 0) box.append(h("p", {}, h("button", { type: "button", class: "link", data: { focus: "open trace" }, on: { click: () => openTrace(trace) } }, "Open its trace")));
  if (trial.error) box.append(h("pre", { class: "text" }, visible(str(trial.error))));
  for (const verdict of records(trial.verdicts)) {
    const status = str(verdict.status);
    const holds = status === "pass" || status === "warn";
    box.append(disclosure([h("b", { class: holds ? "ok" : "fail" }, `${holds ? "✓" : "✗"} ${visible(str(verdict.check))}`), ` ${visible(str(verdict.message)).split("\n", 1)[0]}`], (body) => body.append(renderCheck(verdict)), !holds, "item"));
  }
  if (trial.output) box.append(h("h4", {}, "Output"), h("pre", { class: "text" }, visible(str(trial.output))));
  if (isRecord(trial.metrics)) box.append(disclosure(["metrics"], (body) => body.append(tree(trial.metrics))));
  return box;
}

export { list };
