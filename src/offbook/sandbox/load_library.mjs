// Imports an npm package that has no extensions, from the folder of the project it is installed in.
//
//     node load_library.mjs PROJECT NAME REPORT
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [project, name, report] = process.argv.slice(2);
const folder = join(project, "node_modules", name);
const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
const require = createRequire(join(project, "package.json"));
const BROWSER = /\b(window|document|navigator|self|location|HTMLElement|customElements|CustomEvent) is not defined/;
const CODE = /\.(c|m)?js$|\.node$/;

function listEntries() {
  const { exports } = manifest;
  if (exports && typeof exports === "object" && !Array.isArray(exports)) {
    const paths = Object.keys(exports).filter((key) => key.startsWith("."));
    // A pattern has no module of its own, and null excludes one.
    const named = paths.filter((key) => !key.includes("*") && exports[key] !== null && hasCode(exports[key]));
    if (paths.length) return named.includes(".") ? ["."] : named.slice(0, 20);
  }
  if (exports) return hasCode(exports) ? ["."] : [];
  const main = manifest.main || "index.js";
  const files = [main, `${main}.js`, `${main}.cjs`, `${main}.json`, join(main, "index.js")];
  const declared = manifest.main && CODE.test(manifest.main);
  return declared || files.some((file) => CODE.test(file) && existsSync(join(folder, file))) ? ["."] : [];
}

function hasCode(target) {
  if (typeof target === "string") return CODE.test(target);
  if (!target) return false;
  return Object.entries(target).some(([key, value]) => key !== "types" && key !== "browser" && hasCode(value));
}

async function load(path) {
  const id = join(name, path);
  try {
    // Node finds a package from the file that imports it.
    const script = join(project, "offbook-load.mjs");
    writeFileSync(script, "export default (id) => import(id);");
    await (await import(pathToFileURL(script))).default(id);
  } catch (error) {
    try {
      require(id);
    } catch (second) {
      const last = second.code === "ERR_REQUIRE_ESM" || second.code === "ERR_PACKAGE_PATH_NOT_EXPORTED" ? error : second;
      if (!BROWSER.test(String(last))) return { path, code: last.code ?? "", message: String(last.message ?? last), stack: String(last.stack ?? last) };
    }
  }
  return null;
}

const state = { modules: [], errors: [] };
for (const path of listEntries()) {
  const error = await load(path);
  if (error) state.errors.push(error);
  else state.modules.push(join(name, path));
}
// A package of types, styles or data has files only: those that it names must exist.
if (!state.modules.length && !state.errors.length) {
  const files = [manifest.types, manifest.typings, manifest.style, manifest.main].filter((file) => typeof file === "string" && file);
  for (const file of files)
    if (!existsSync(join(folder, file)) && !existsSync(join(folder, `${file}.d.ts`))) state.errors.push({ path: file, code: "ENOENT", message: `${file} does not exist`, stack: file });
  if (!state.errors.length) state.modules.push(`${name} (files)`);
}
writeFileSync(report, JSON.stringify(state));
process.exit(0);
