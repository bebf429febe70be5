// Terminal output with its colours. Only colours and weights are interpreted; every other
// sequence is dropped, and a carriage return starts the line again.

import { h, visible } from "./dom.ts";

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// a sequence: CSI with parameters and a final byte, OSC up to its end, or two characters
const SEQUENCE = /\u001b(?:\[([0-9;:?<=>]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;

interface Style { fg: string; bg: string; bold: boolean; dim: boolean; italic: boolean; underline: boolean; inverse: boolean }
const PLAIN: Style = { fg: "", bg: "", bold: false, dim: false, italic: false, underline: false, inverse: false };

export function ansi(text: string): DocumentFragment {
  const result = document.createDocumentFragment();
  let style = { ...PLAIN };
  let at = 0;
  const source = overwrite(text);
  for (const found of source.matchAll(SEQUENCE)) {
    append(result, source.slice(at, found.index), style);
    at = found.index + found[0].length;
    if (found[2] === "m") style = apply(style, found[1] ?? "");
  }
  append(result, source.slice(at), style);
  return result;
}

/** Text before a carriage return is overwritten by what follows, as on a terminal. */
function overwrite(text: string): string {
  return text.replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, "").replace(/\r/g, "");
}

function append(target: DocumentFragment, text: string, style: Style): void {
  const shown = visible(text.replace(/[\u0007\u0008]/g, ""));
  if (!shown) return;
  const classes = (["bold", "dim", "italic", "underline"] as const).filter((name) => style[name]);
  const [fg, bg] = style.inverse ? [style.bg || "inverse", style.fg || "inverse"] : [style.fg, style.bg];
  if (!classes.length && !fg && !bg) return target.append(shown);
  const span = h("span", {}, shown);
  for (const name of classes) span.classList.add(`ansi-${name}`);
  paint(span, "fg", fg);
  paint(span, "bg", bg);
  target.append(span);
}

function paint(span: HTMLElement, side: "fg" | "bg", colour: string): void {
  if (!colour) return;
  if (colour.startsWith("rgb(")) span.style.setProperty(side === "fg" ? "color" : "background-color", colour);
  else span.classList.add(`ansi-${side}-${colour}`);
}

function apply(style: Style, parameters: string): Style {
  const next = { ...style };
  const codes = parameters.split(/[;:]/).map((part) => Number(part || 0));
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i]!;
    if (code === 0) Object.assign(next, PLAIN);
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code === 39) next.fg = "";
    else if (code === 49) next.bg = "";
    else if (code >= 30 && code <= 37) next.fg = NAMES[code - 30]!;
    else if (code >= 40 && code <= 47) next.bg = NAMES[code - 40]!;
    else if (code >= 90 && code <= 97) next.fg = `bright-${NAMES[code - 90]!}`;
    else if (code >= 100 && code <= 107) next.bg = `bright-${NAMES[code - 100]!}`;
    else if (code === 38 || code === 48) {
      const colour = codes[i + 1] === 5 ? indexed(codes[i + 2] ?? 0) : codes[i + 1] === 2 ? rgb(codes[i + 2], codes[i + 3], codes[i + 4]) : "";
      i += codes[i + 1] === 5 ? 2 : 4;
      if (code === 38) next.fg = colour;
      else next.bg = colour;
    }
  }
  return next;
}

function rgb(...parts: (number | undefined)[]): string {
  return `rgb(${parts.map((part) => Math.max(0, Math.min(255, part || 0))).join(", ")})`;
}

function indexed(code: number): string {
  if (code < 8) return NAMES[Math.max(0, code)] ?? "";
  if (code < 16) return `bright-${NAMES[code - 8]!}`;
  if (code >= 232) return rgb(8 + (code - 232) * 10, 8 + (code - 232) * 10, 8 + (code - 232) * 10);
  const level = (part: number) => (part ? 55 + part * 40 : 0);
  return rgb(level(Math.floor((code - 16) / 36)), level(Math.floor((code - 16) / 6) % 6), level((code - 16) % 6));
}
