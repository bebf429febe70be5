// The colours of Python source. Its words are told apart; nothing is parsed.

import { h } from "./dom.ts";

const KEYWORDS = "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield";
const TOKEN = new RegExp([
  String.raw`(?<comment>#.*)`,
  String.raw`(?<string>(?:\b[rbuftRBUFT]{1,2})?(?:"""[^]*?(?:"""|$(?![^]))|'''[^]*?(?:'''|$(?![^]))|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))`,
  String.raw`(?<keyword>\b(?:${KEYWORDS.replaceAll(" ", "|")})\b)`,
  String.raw`(?<number>\b\d[\w.]*)`,
  String.raw`(?<name>@(?<=^[ \t]*@)[\w.]+|\b(?<=\b(?:def|class) +)\w+)`,
].join("|"), "gm");
const LONG = 20_000; // characters: a longer text has no colours

/** The lines of a source, each in parts. */
export function colouredLines(lines: string[]): (Node | string)[][] {
  const text = lines.join("\n");
  if (text.length > LONG) return lines.map((line) => [line]);
  const found: (Node | string)[][] = [[]];
  const add = (part: string, kind: string): void => part.split("\n").forEach((piece, at) => {
    if (at) found.push([]);
    if (piece) found.at(-1)!.push(kind ? h("span", { class: `py-${kind}` }, piece) : piece);
  });
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    add(text.slice(end, match.index), "");
    add(match[0], Object.entries(match.groups ?? {}).find(([, value]) => value !== undefined)?.[0] ?? "");
    end = match.index + match[0].length;
  }
  add(text.slice(end), "");
  return found;
}
