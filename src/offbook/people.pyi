from offbook.exchange.people import Allow as Allow
from offbook.exchange.people import Deny as Deny
from offbook.exchange.people import PersonQuestion as PersonQuestion
from offbook.exchange.people import SimulatedPerson as SimulatedPerson
from offbook.exchange.people import allow as allow
from offbook.exchange.people import deny as deny
from offbook.sources.playbook.actions import person as person
