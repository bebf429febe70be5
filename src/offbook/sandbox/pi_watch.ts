// Loaded before the extensions of a package: reports which ones pi resolves, and tools that are
// registered twice or wrongly. pi itself replaces a tool of the same name without a word.
import { writeFileSync } from "node:fs";

const PACKAGES = ["@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent"];
const state: any = { loading: true, duplicates: [], invalid: [], schemas: {}, resolved: null };
(globalThis as any).__offbookSandbox = state;

const set = Map.prototype.set;
Map.prototype.set = function (key: any, value: any) {
  // pi keeps the tools of an extension in a Map of { definition, sourceInfo }.
  if (state.loading && value && typeof value === "object" && "definition" in value && value.sourceInfo) {
    const tool = value.definition;
    const before = this.get(key);
    if (before && before.sourceInfo === value.sourceInfo) state.duplicates.push(String(key));
    if (typeof key !== "string" || !key) state.invalid.push("a tool has no name");
    else if (typeof tool?.execute !== "function") state.invalid.push(`the tool ${key} has no function execute`);
    else if (!tool.parameters || typeof tool.parameters !== "object")
      state.invalid.push(`the tool ${key} has no parameters`);
    else state.schemas[key] = tool.parameters;
  }
  return set.call(this, key, value);
};

export default async function () {
  for (const name of PACKAGES) {
    try {
      const { DefaultPackageManager, SettingsManager } = await import(name);
      const manager = new DefaultPackageManager({
        cwd: process.cwd(),
        agentDir: process.env.PI_CODING_AGENT_DIR,
        settingsManager: SettingsManager.inMemory(),
      });
      const found = await manager.resolveExtensionSources([process.env.OFFBOOK_PACKAGE], { temporary: true });
      const enabled = (resources: any[]) => resources.filter((r) => r.enabled).map((r) => r.path);
      const { extensions, skills, themes } = found;
      state.resolved = { extensions: enabled(extensions), skills: enabled(skills), themes: enabled(themes) };
      break;
    } catch (error) {
      state.problem = String(error);
    }
  }
  // Written now as well: pi exits before the session starts if an extension fails to load.
  writeFileSync(process.env.OFFBOOK_REPORT!, JSON.stringify(state));
}
