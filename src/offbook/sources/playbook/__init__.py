"""A playbook scripts the model: `when` a prompt arrives, the model `call`s tools and `say`s texts.

    when("Refund order 7", [
        call("find_order", {"id": 7}),
        [call("refund", {"id": 7}), call("notify", {"id": 7})],    # two calls in one message
        say("Done."),
    ])

A turn is a prompt and its steps; a step is one message of the model. A `role` is a separate script
for requests that look different: those of a subagent, a title generator, a router.
"""
