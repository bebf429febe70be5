// A run that has a tape can be repeated up to a step and continued with another model: the commands.

import { copyButton, h, textBlock } from "./dom.ts";
import { quoted } from "./copy.ts";
import type { StepInfo, Tape } from "./store.ts";

/** The ways to go on after an interaction of a tape, each with its command or its line of Python. */
export function forksOf(tape: Tape, interaction: number): [string, string][] {
  if (!tape.command.length) {
    const source = `Cassette(${JSON.stringify(tape.file)}, tracks="all")`;
    return [["Continue with the real model, in Python", `source = ${source}.fork(${interaction}, Live())`]];
  }
  const tracks = tape.tracks.length > 1 ? ` --tracks ${tape.tracks.join()}` : "";
  const line = (options: string) => `offbook replay ${quoted(tape.file)}${tracks} ${options} -- ${tape.command.map(quoted).join(" ")}`;
  return [
    ["Stop after this step", line(`--until ${interaction}`)],
    ["Continue with the real model", line(`--from ${interaction} --live`)],
    ["Continue with a script", line(`--from ${interaction} --script new.yaml`)],
  ];
}

export function renderForks(tape: Tape, step: StepInfo): HTMLElement {
  return h("section", { class: "forks" }, h("h3", {}, `Fork after interaction ${step.interaction} of the tape`),
    ...forksOf(tape, step.interaction).map(([label, command]) => h("div", {}, h("h4", {}, label), textBlock(command), copyButton("Copy", () => command))));
}
