"""Plan mode: the agent proposes a plan, and the user approves it before anything is changed.

While plan mode is on, the tools that write are blocked, and so is every shell command that is not
known to be read-only. Plans are proposed, listed, read, approved and rejected with tools.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from shell import write_risk

WRITE_TOOLS = {"write", "edit"}
STATUS = "plan-mode"


@dataclass
class Plan:
    """A plan of the agent, with its status."""

    title: str
    steps: list[dict[str, Any]]
    status: str = "proposed"
    reason: str = ""
    id: str = field(default_factory=lambda: f"PLAN-{secrets.token_hex(4)}")

    def __str__(self) -> str:
        return f"{self.id} [{self.status}] {self.title}"

    def describe(self) -> str:
        """Return the plan with its steps."""
        steps = [f"{number}. {describe_step(step)}" for number, step in enumerate(self.steps, 1)]
        reason = [f"Rejected: {self.reason}"] if self.reason else []
        return "\n".join([str(self), *reason, *steps])


def describe_step(step: dict[str, Any]) -> str:
    """Return the description of a step, with its tool."""
    tool = " ".join(filter(None, (step.get("tool"), step.get("operation"))))
    return f"{step['description']} ({tool})" if tool else step["description"]


class Planner:
    """The plans of one session, and its mode."""

    def __init__(self) -> None:
        self.planning = False
        self.plans: dict[str, Plan] = {}

    async def switch(self, params, ctx):
        """Enter plan mode; leave it after an approval, or if the user agrees."""
        enable = params["enable"]
        if enable == self.planning:
            return f"Plan mode is already {'on' if self.planning else 'off'}."
        approved = any(plan.status == "approved" for plan in self.plans.values())
        if (
            not enable
            and not approved
            and not await ctx.ui.confirm("Leave plan mode?", "No plan was approved.")
        ):
            return failed("Plan mode stays on: no plan was approved.")
        self.planning = enable
        ctx.ui.set_status(STATUS, "planning" if self.planning else None)
        return f"Plan mode is now {'on: nothing can be changed' if self.planning else 'off'}."

    def propose(self, params, ctx):
        """Store a proposed plan."""
        plan = Plan(params["title"], params["steps"])
        self.plans[plan.id] = plan
        ctx.ui.notify(f"New plan: {plan.title}")
        return {
            "content": f"{plan.id} proposed: {plan.title}, {len(plan.steps)} step(s).",
            "details": {"id": plan.id},
        }

    def list_all(self, params, ctx):
        """Return all plans, or those with a status."""
        status = params.get("status")
        lines = [str(plan) for plan in self.plans.values() if status in {None, plan.status}]
        return "\n".join(lines) or "No plans found."

    def get(self, params, ctx):
        """Return one plan with its steps."""
        plan = self.plans.get(params["id"])
        return plan.describe() if plan else self.unknown(params["id"])

    async def approve(self, params, ctx):
        """Ask the user to approve a plan."""
        plan = self.plans.get(params["id"])
        if plan is None:
            return self.unknown(params["id"])
        if plan.status != "proposed":
            return failed(f"{plan.id} is {plan.status} already.")
        if not await ctx.ui.confirm(f"Approve {plan.id}?", plan.describe()):
            return f"{plan.id} was not approved."
        if plan.status != "proposed":  # another call decided while the user was asked
            return failed(f"{plan.id} is {plan.status} already.")
        plan.status = "approved"
        return f"{plan.id} approved."

    def reject(self, params, ctx):
        """Reject a plan."""
        plan = self.plans.get(params["id"])
        if plan is None:
            return self.unknown(params["id"])
        if plan.status != "proposed":
            return failed(f"{plan.id} is {plan.status} already.")
        plan.status = "rejected"
        plan.reason = params.get("reason", "")
        return f"{plan.id} rejected."

    def guard(self, event, ctx):
        """Block the tool calls that could change files while plan mode is on."""
        if not self.planning:
            return None
        if event.tool in WRITE_TOOLS:
            return {"block": True, "reason": f"Plan mode: {event.tool} is off. Propose a plan."}
        reason = write_risk(event.input["command"]) if event.tool == "bash" else ""
        return {"block": True, "reason": f"Plan mode: {reason}."} if reason else None

    def show(self, args, ctx):
        """Show the plans, for the command /plans."""
        ctx.ui.set_widget("plans", [str(plan) for plan in self.plans.values()] or ["No plans."])

    def unknown(self, plan_id):
        """Return an error with the nearest id."""
        close = get_close_matches(plan_id, self.plans, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return failed(f"Unknown plan {plan_id}.{hint}")


def failed(text: str) -> dict[str, Any]:
    """Return an error result of a tool."""
    return {"content": text, "is_error": True}


def object_schema(*required: str, **properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
STEP = object_schema("description", description=TEXT, tool=TEXT, operation=TEXT)
STEPS = {"type": "array", "items": STEP, "minItems": 1}
STATUSES = {"enum": ["proposed", "approved", "rejected"]}


def extension(api, planner=None):
    """Register the tools, the guard and the command; a test passes its own planner."""
    planner = planner or Planner()
    for name, tool, description, parameters in (
        (
            "plan_mode",
            planner.switch,
            "Enter or leave plan mode.",
            object_schema("enable", enable={"type": "boolean"}),
        ),
        (
            "plan_propose",
            planner.propose,
            "Propose a plan.",
            object_schema("title", "steps", title=TEXT, steps=STEPS),
        ),
        ("plan_list", planner.list_all, "List the plans.", object_schema(status=STATUSES)),
        ("plan_get", planner.get, "Read a plan.", object_schema("id", id=TEXT)),
        ("plan_approve", planner.approve, "Ask for approval.", object_schema("id", id=TEXT)),
        (
            "plan_reject",
            planner.reject,
            "Reject a plan.",
            object_schema("id", id=TEXT, reason=TEXT),
        ),
    ):
        api.register_tool(name, tool, description=description, parameters=parameters)
    api.on("tool_call")(planner.guard)
    api.command("plans")(planner.show)
