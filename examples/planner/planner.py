"""Plan mode: the agent plans, a person approves, and until then nothing is changed.

While plan mode is on, the tools that write are blocked, and so is every shell command that is not
known to only read. Plans are proposed, listed, read, approved and rejected with tools of their
own.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from shell import why_not_readonly

WRITING = {"write", "edit"}
STATUS = "plan-mode"


@dataclass
class Plan:
    """What the agent wants to do, and what a person thinks of it."""

    title: str
    steps: list[dict[str, Any]]
    status: str = "proposed"
    reason: str = ""
    id: str = field(default_factory=lambda: f"PLAN-{secrets.token_hex(4)}")

    def __str__(self) -> str:
        return f"{self.id} [{self.status}] {self.title}"

    def describe(self) -> str:
        """The plan with all its steps."""
        steps = [f"{at}. {describe_step(step)}" for at, step in enumerate(self.steps, 1)]
        why = [f"Rejected: {self.reason}"] if self.reason else []
        return "\n".join([str(self), *why, *steps])


def describe_step(step: dict[str, Any]) -> str:
    """One step: what, and with which tool."""
    tool = " ".join(filter(None, (step.get("tool"), step.get("operation"))))
    return f"{step['description']} ({tool})" if tool else step["description"]


class Planner:
    """The plans of one session, and whether it is planning."""

    def __init__(self) -> None:
        self.planning = False
        self.plans: dict[str, Plan] = {}

    def switch(self, params, ctx):
        """Enter plan mode or leave it."""
        if params["enable"] == self.planning:
            return f"Plan mode is already {'on' if self.planning else 'off'}."
        self.planning = params["enable"]
        ctx.ui.set_status(STATUS, "planning" if self.planning else None)
        return f"Plan mode is now {'on: nothing can be changed' if self.planning else 'off'}."

    def propose(self, params, ctx):
        """Write a plan down."""
        plan = Plan(params["title"], params["steps"])
        self.plans[plan.id] = plan
        ctx.ui.notify(f"New plan: {plan.title}")
        return {
            "content": f"{plan.id} proposed: {plan.title}, {len(plan.steps)} step(s).",
            "details": {"id": plan.id},
        }

    def list_all(self, params, ctx):
        """All plans, or those of one status."""
        wanted = params.get("status")
        found = [str(plan) for plan in self.plans.values() if wanted in {None, plan.status}]
        return "\n".join(found) or "No plans found."

    def get(self, params, ctx):
        """One plan with its steps."""
        plan = self.plans.get(params["id"])
        return plan.describe() if plan else self.unknown(params["id"])

    async def approve(self, params, ctx):
        """Ask the person whether a plan may be carried out."""
        plan = self.plans.get(params["id"])
        if plan is None:
            return self.unknown(params["id"])
        if plan.status != "proposed":
            return failed(f"{plan.id} is {plan.status} already.")
        if not await ctx.ui.confirm(f"Approve {plan.id}?", plan.describe()):
            return f"{plan.id} was not approved."
        plan.status = "approved"
        return f"{plan.id} approved."

    def reject(self, params, ctx):
        """Put a plan aside."""
        plan = self.plans.get(params["id"])
        if plan is None:
            return self.unknown(params["id"])
        if plan.status != "proposed":
            return failed(f"{plan.id} is {plan.status} already.")
        plan.status = "rejected"
        plan.reason = params.get("reason", "")
        return f"{plan.id} rejected."

    def guard(self, moment, ctx):
        """Block whatever would change something while a plan is being made."""
        if not self.planning:
            return None
        if moment.tool in WRITING:
            return {"block": True, "reason": f"Plan mode: {moment.tool} is off. Propose a plan."}
        reason = why_not_readonly(moment.input["command"]) if moment.tool == "bash" else ""
        return {"block": True, "reason": f"Plan mode: {reason}."} if reason else None

    def show(self, args, ctx):
        """The command /plans."""
        ctx.ui.set_widget("plans", [str(plan) for plan in self.plans.values()] or ["No plans."])

    def unknown(self, wanted):
        """There is no such plan; perhaps there is one like it."""
        close = get_close_matches(wanted, self.plans, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return failed(f"There is no plan {wanted}.{hint}")


def failed(text: str) -> dict[str, Any]:
    """An error, as a tool tells it."""
    return {"content": text, "is_error": True}


def takes(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of a tool's parameters."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
STEP = takes("description", description=TEXT, tool=TEXT, operation=TEXT)
STEPS = {"type": "array", "items": STEP, "minItems": 1}
STATUSES = {"enum": ["proposed", "approved", "rejected"]}


def extension(api):
    """Register the tools, the guard and the command."""
    planner = Planner()
    for name, tool, about, parameters in (
        (
            "plan_mode",
            planner.switch,
            "Enter or leave plan mode.",
            takes("enable", enable={"type": "boolean"}),
        ),
        (
            "plan_propose",
            planner.propose,
            "Propose a plan.",
            takes("title", "steps", title=TEXT, steps=STEPS),
        ),
        ("plan_list", planner.list_all, "List the plans.", takes(status=STATUSES)),
        ("plan_get", planner.get, "Read a plan.", takes("id", id=TEXT)),
        ("plan_approve", planner.approve, "Ask for approval.", takes("id", id=TEXT)),
        ("plan_reject", planner.reject, "Reject a plan.", takes("id", id=TEXT, reason=TEXT)),
    ):
        api.register_tool(name, tool, description=about, parameters=parameters)
    api.on("tool_call")(planner.guard)
    api.command("plans")(planner.show)
