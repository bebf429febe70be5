"""The answers of people in a script: `person("refund", allow)`."""

from offbook.capability import lazy_names

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {"exchange.people": "SimulatedPerson allow deny", "sources.playbook.actions": "person"},
    package="offbook",
    internal={"exchange.people": "Allow Deny PersonQuestion"},
)
