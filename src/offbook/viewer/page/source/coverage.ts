// The coverage of an agent: which of its parts the runs have exercised.

import { disclosure, h, visible } from "./dom.ts";
import { type Data, isRecord, records, str } from "./events.ts";

/** The parts of the agent, those that were never run first; null if the page has no coverage. */
export function renderCoverage(coverage: unknown, open: boolean): HTMLElement | null {
  if (!isRecord(coverage)) return null;
  const parts = records(coverage.parts);
  const isMissing = (part: Data) => part.offered === true && part.state !== "covered";
  const order = [...parts.filter(isMissing), ...parts.filter((part) => !isMissing(part))];
  const outcomes = (part: Data) => Object.entries(isRecord(part.outcomes) ? part.outcomes : {}).map(([name, number]) => `${str(number)} ${name}`).join(", ");
  return disclosure([h("b", {}, "Coverage of the agent"), ` ${str(coverage.covered)} of ${str(coverage.offered)} parts run (${str(coverage.percent)} %)`],
    (body) => body.append(h("div", { class: "scroll-x", role: "group", tabindex: 0, aria: { label: "table" } }, h("table", { class: "table" },
      h("thead", {}, h("tr", {}, ...["Part", "Name", "State", "Outcomes"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...order.slice(0, 2000).map((part) => h("tr", {},
        h("td", {}, visible(str(part.kind))), h("td", {}, visible(str(part.name))),
        h("td", { class: isMissing(part) ? "warn" : part.state === "covered" ? "ok" : "" }, visible(str(part.state))),
        h("td", {}, visible(outcomes(part))))))))), open, "item coverage");
}
