from offbook.capability import Capability
from offbook.explore.invariants import at_most as at_most
from offbook.explore.invariants import ends_within as ends_within
from offbook.explore.invariants import never_before as never_before
from offbook.explore.invariants import no_secret_in_answer as no_secret_in_answer
from offbook.explore.moves import find_values as find_values
from offbook.explore.search import Counterexample as Counterexample
from offbook.explore.search import Exploration as Exploration
from offbook.explore.search import explore as explore
from offbook.explore.search import replay as replay

CAPABILITY: Capability

__all__ = [
    "CAPABILITY",
    "Counterexample",
    "Exploration",
    "at_most",
    "ends_within",
    "explore",
    "find_values",
    "never_before",
    "no_secret_in_answer",
    "replay",
]
