// Builds ../viewer.html: the page with its script and its style in it, and no data.
// The output depends on the sources and the pinned packages only.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const output = process.argv[2] ?? here("../viewer.html");

const bundle = await build({
  entryPoints: [here("source/main.ts")],
  bundle: true,
  minify: true,
  charset: "ascii",
  format: "iife",
  target: ["chrome110", "firefox115", "safari16.4"],
  legalComments: "none",
  write: false,
});
const script = bundle.outputFiles[0].text.trim();
const style = (
  await transform(readFileSync(here("source/style.css"), "utf8"), { loader: "css", minify: true })
).code.trim();
for (const [name, text] of Object.entries({ script, style })) {
  if (/<\/(script|style)|<!--/i.test(text)) throw new Error(`the ${name} would end its element`);
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const template = readFileSync(here("source/page.html"), "utf8");
const parts = { SCRIPT: script, STYLE: style, SCRIPT_HASH: hash(script), STYLE_HASH: hash(style) };
writeFileSync(output, template.replace(/%(\w+)%/g, (found, name) => parts[name] ?? found));
