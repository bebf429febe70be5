"""A check-up: a list of portable scenarios that is played against any agent, without a test.

offbook checkup shop:agent "Refund order 7"
"""

from offbook.capability import Capability, CommandEntry

CAPABILITY = Capability(
    heading="Explore",
    commands={
        "checkup": CommandEntry(
            "Play unusual replies, errors and faults against an agent.",
            "offbook.checkup.checkup_cli:checkup_command",
        ),
    },
)
__all__: list[str] = []
