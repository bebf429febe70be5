"""Agents that speak the Agent Client Protocol (ACP), as editors start them.

    with drive(Acp(GeminiCli(approval="default"))) as rehearsal:
        rehearsal.run(when("Tidy up", [
            call("shell", {"command": "rm notes.txt"}),
            person("shell", allow),
            say("Done."),
        ]))

One process serves all prompts: JSON-RPC on its standard streams. Its model is the endpoint of the
run, so scripts, checks and tool calls are those of the command-line agent. The client is ours: it
answers permission requests by the script, and offers files and terminals (`acp_host.py`).

Updates of the agent (messages, tool calls with their diffs, plans) are `process.event` in the
trace, and a plan is also `plan`. What the agent asks of the client is `host.call`.
"""

from offbook.subjects.clis.acp.acp_agent import Acp as Acp
