"""Pi with its real extensions.

    playbook ◀─ HTTP ─ pi ── stdout ─▶ responses, dialogs           (pi_process.py, RPC mode)
                       ├─ extensions under test, unchanged
                       └─ witness ─ socket ─▶ tools, mocks, ctx.ui  (pi_run.py, every mode)

The model is the playbook. Mock tools and the answers of the user are Python functions. Everything
else is pi's own: extensions, hooks, commands, validation of parameters and built-in tools.
"""

from offbook.subjects.clis.pi.pi_agent import Pi as Pi
