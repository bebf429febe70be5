// Plan mode for pi: the agent proposes a plan, and the user approves it before anything is changed.
import { randomBytes } from "node:crypto";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

interface Plan {
  title: string;
  steps: { description: string }[];
  status: "proposed" | "approved";
}

const text = (value: string, details: object = {}) => ({
  content: [{ type: "text" as const, text: value }],
  details,
});
const object = (properties: object) =>
  ({ type: "object", properties, required: Object.keys(properties) }) as any;
const STRING = { type: "string", minLength: 1 };
const STEP = object({ description: STRING });

export default function planner(pi: ExtensionAPI) {
  const plans = new Map<string, Plan>();
  let planning = false;

  pi.registerTool({
    name: "plan_mode",
    label: "Plan mode",
    description: "Enter plan mode or leave it.",
    parameters: object({ enable: { type: "boolean" } }),
    async execute(_id, params: any, _signal, _onUpdate, ctx) {
      planning = params.enable;
      ctx.ui.setStatus("plan-mode", planning ? "planning" : undefined);
      return text(`Plan mode is now ${planning ? "on" : "off"}.`);
    },
  });

  pi.registerTool({
    name: "plan_propose",
    label: "Propose a plan",
    description: "Propose a plan to the user.",
    parameters: object({ title: STRING, steps: { type: "array", items: STEP, minItems: 1 } }),
    async execute(_id, params: any) {
      const id = `PLAN-${randomBytes(4).toString("hex")}`;
      plans.set(id, { title: params.title, steps: params.steps, status: "proposed" });
      return text(`${id} proposed: ${params.title}.`, { id });
    },
  });

  pi.registerTool({
    name: "plan_approve",
    label: "Approve a plan",
    description: "Ask the user to approve a plan.",
    parameters: object({ id: STRING }),
    async execute(_id, params: any, _signal, _onUpdate, ctx) {
      const plan = plans.get(params.id);
      if (!plan) throw new Error(`Unknown plan ${params.id}.`);
      const steps = plan.steps.map((step) => step.description).join("\n");
      if (!(await ctx.ui.confirm(`Approve ${params.id}?`, steps))) {
        return text(`${params.id} was not approved.`);
      }
      plan.status = "approved";
      planning = false;
      ctx.ui.notify(`Approved: ${plan.title}`);
      return text(`${params.id} approved.`);
    },
  });

  pi.on("tool_call", async (event) => {
    if (planning && ["write", "edit", "bash"].includes(event.toolName)) {
      return { block: true, reason: `${event.toolName} is off until a plan is approved` };
    }
  });
}
