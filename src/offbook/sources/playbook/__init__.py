"""A playbook scripts the model: `when` a prompt arrives, the model `call`s tools and `say`s texts.

    when("Refund order 7", [
        call("find_order", {"id": 7}),
        [call("refund", {"id": 7}), call("notify", {"id": 7})],    # two calls in one message
        say("Done."),
    ])

A turn is a prompt and its steps; a step is one message of the model. A `role` is a separate script
for requests that look different: those of a subagent, a title generator, a router.
"""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "actions": "Action Call Role Say Turn call describe fail read_head role say think validate"
        " when",
        "diagnostics": "suggest_role",
        "playbook": "MAX_HEADS Playbook",
    },
)
