// A tool that asks before it pays, for pi.
import { appendFileSync } from "node:fs";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

const parameters = {
  type: "object",
  properties: { amount: { type: "integer" }, ledger: { type: "string" }, asks: { type: "boolean" } },
};

export default function (pi: ExtensionAPI) {
  pi.registerTool({
    name: "pay",
    label: "pay",
    description: "Pay.",
    parameters: parameters as any,
    execute: async (_id: string, params: any, _signal: any, _update: any, ctx: any) => {
      const sure = !params.asks || (await ctx.ui.confirm("pay?", `Really pay ${params.amount}?`));
      if (sure) appendFileSync(params.ledger, `${params.amount}\n`);
      return { content: [{ type: "text" as const, text: sure ? "paid" : "refused" }], details: {} };
    },
  });
}
