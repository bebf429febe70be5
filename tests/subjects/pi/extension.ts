// The extension of worlds.py, for pi.
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

const NAME = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const NOTHING = { type: "object", properties: {} };
const text = (value: string, details: object = {}) => ({
  content: [{ type: "text" as const, text: value }],
  details,
});

await Promise.resolve(); // K6: a top-level await

export default function (pi: ExtensionAPI) {
  const items: string[] = [];
  const seen: string[] = [];
  const tool = (name: string, parameters: object, execute: (params: any, ctx: any) => any) =>
    pi.registerTool({
      name,
      label: name,
      description: name,
      parameters: parameters as any,
      execute: async (_id: string, params: any, _signal: any, _update: any, ctx: any) =>
        execute(params, ctx),
    });

  tool("greet", NAME, async ({ name }, ctx) => {
    const sure = await ctx.ui.confirm("Greet?", `Really greet ${name}?`);
    return text(sure ? `Hello ${name}` : "No greeting");
  });
  tool("ask", NOTHING, async (_params, ctx) => {
    const pick = await ctx.ui.select("Tone", ["formal", "casual"]);
    const line = await ctx.ui.input("Name", "your name");
    const draft = await ctx.ui.editor("Text", "draft");
    ctx.ui.notify("asked", "warning");
    ctx.ui.setStatus("key", "value");
    ctx.ui.setWidget("box", ["one", "two"]);
    const show = (value: unknown) => (value === undefined ? "None" : value);
    return text(`${show(pick)} ${show(line)} ${show(draft)}`);
  });
  tool("create", NOTHING, () => {
    items.push(`ITEM-${items.length + 1}`);
    return text(`created ${items.at(-1)}`, { id: items.at(-1) });
  });
  tool("open", NAME, ({ name }) => text(`opened ${name}: ${items.includes(name) ? "True" : "False"}`));
  tool("boom", NOTHING, () => {
    throw new Error("kaput");
  });
  tool("seen", NOTHING, () => text(seen.join(" ")));
  tool("sleep", NOTHING, () => new Promise(() => setInterval(() => {}, 1000)));
  tool("spin", NOTHING, () => {
    for (;;);
  });
  tool("hidden", NOTHING, async (_params, ctx) => {
    ctx.ui.setWorkingMessage("working");
    ctx.ui.setFooter(() => null);
    return text(`custom: ${await ctx.ui.custom(() => null)}`);
  });

  pi.on("tool_call", async (event) => {
    if (event.toolName !== "bash") return;
    const input = event.input as { command: string };
    seen.push(`call:${input.command}`);
    if (input.command.includes("rm")) return { block: true, reason: "too dangerous" };
    if (input.command === "old") input.command = "new";
  });
  pi.on("tool_result", async (event) => {
    if (event.toolName !== "bash") return;
    const original = event.content.map((block: any) => block.text).join("\n");
    seen.push(`result:${original}`);
    if (original === "original") return { content: [{ type: "text", text: "edited" }] };
  });
  pi.on("agent_start", async (_event, ctx) => ctx.ui.notify("agent started"));
  pi.registerCommand("hello", {
    description: "Say hello.",
    handler: async (args, ctx) => ctx.ui.notify(`hello ${args}`),
  });
  pi.registerCommand("narrow", {
    description: "Keep bash only.",
    handler: async () => pi.setActiveTools(["bash"]),
  });
  pi.registerCommand("loop", {
    description: "Prompt pi itself.",
    handler: async () => pi.sendUserMessage("Go by yourself"),
  });
}
