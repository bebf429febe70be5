"""The options of claude-agent-sdk are driven: its process uses the scripted model and resumes."""

import os
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

from offbook import call, drive, say, when
from offbook.errors import ScriptMismatch
from offbook.people import allow, deny, person

ORDER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


@tool("find_order", "Find an order.", ORDER)
async def find_order(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"order {arguments['number']}: one lamp"}]}


options = ClaudeAgentOptions(
    mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[find_order])},
    allowed_tools=["mcp__shop__find_order", "Bash"],
    setting_sources=[],
    env={"ENABLE_TOOL_SEARCH": "false"},
)
with drive(
    options, model="claude-offbook", tool_aliases={"find_order": "mcp__shop__find_order"}
) as rehearsal:
    run = rehearsal.run(
        when("Find order 7", [call("find_order", {"number": 7}), say("One lamp.")]),
        when("Note it", [call("shell", {"command": "echo noted > note.txt"}), say("Noted.")]),
    )
    assert rehearsal.subject.name == "claude-agent-sdk"
    assert run.tools == ["find_order", "shell"]
    assert run.results("find_order")[0].text == "order 7: one lamp"
    assert run.events.named("model.request")[-1].data["count"] > 5  # includes the first turn
    assert (rehearsal.cwd / "note.txt").read_text() == "noted\n"
    assert rehearsal.subject.result.result == run.output == "Noted."
    home = Path(rehearsal.subject.adapter._options.env["HOME"])
    assert home.is_dir()
    assert str(home) != os.environ.get("HOME")
assert not home.exists()
assert options.env == {"ENABLE_TOOL_SEARCH": "false"}


# A person allows, denies or changes a command. Without a script, or unasked, the run fails.
def approve(folder: str, *people: Any, message: str = "", **more: Any) -> list[str]:
    """Return what was paid in a folder; with a message, the run fails with it."""
    cwd = Path(folder).absolute()
    cwd.mkdir()
    asking = ClaudeAgentOptions(setting_sources=[], **more)
    pay = call("shell", {"command": "echo 7 >> paid"})
    found = ""
    try:
        with drive(asking, model="claude-offbook", cwd=cwd) as rehearsal:
            rehearsal.run(when("Pay", [pay, *people, say("Done.")]))
    except ScriptMismatch as error:
        found = str(error)
    assert (message in found) if message else not found, found
    return (cwd / "paid").read_text().split() if (cwd / "paid").exists() else []


edited = allow({"command": "echo 5 >> paid"})
unasked = person("shell", allow)
assert approve("allow", person("shell", allow)) == ["7"]
assert approve("deny", person("shell", deny("too much"))) == []
assert approve("edit", person("shell", edited)) == ["5"]
assert approve("unexpected", message="no person(…) of the script answers it") == []
approve("never", unasked, message="asked no person: step 2", allowed_tools=["Bash"])
print("driven")
