// Loaded after the extensions of a package: reports the tools, skills and commands of the session.
import { writeFileSync } from "node:fs";

export default function (pi: any) {
  const state = (globalThis as any).__offbookSandbox;
  state.loading = false;
  writeFileSync(process.env.OFFBOOK_REPORT!, JSON.stringify(state));
  pi.on("session_start", () => {
    state.tools = pi.getAllTools().map((tool: any) => ({ name: tool.name, path: tool.sourceInfo?.path }));
    state.commands = pi
      .getCommands()
      .map((command: any) => ({ name: command.name, kind: command.source, path: command.sourceInfo?.path }));
    writeFileSync(process.env.OFFBOOK_REPORT!, JSON.stringify(state));
  });
}
