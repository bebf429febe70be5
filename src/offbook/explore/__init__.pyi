from offbook.capability import Capability
from offbook.explore.argument_values import ArgumentValues as ArgumentValues
from offbook.explore.argument_values import Draw as Draw
from offbook.explore.argument_values import learn as learn
from offbook.explore.broken_tools import find_tool_code as find_tool_code
from offbook.explore.broken_tools import find_tool_values as find_tool_values
from offbook.explore.candidates import SDKS as SDKS
from offbook.explore.candidates import scan_project as scan_project
from offbook.explore.code_constants import find_constants as find_constants
from offbook.explore.invariants import at_most as at_most
from offbook.explore.invariants import ends_within as ends_within
from offbook.explore.invariants import never_before as never_before
from offbook.explore.invariants import no_secret_in_answer as no_secret_in_answer
from offbook.explore.moves import GeneratedCall as GeneratedCall
from offbook.explore.moves import Move as Move
from offbook.explore.moves import Place as Place
from offbook.explore.moves import build_turns as build_turns
from offbook.explore.moves import find_values as find_values
from offbook.explore.moves import render_script as render_script
from offbook.explore.moves import render_tests as render_tests
from offbook.explore.moves import resolve as resolve
from offbook.explore.moves import run_rendered as run_rendered
from offbook.explore.observed_run import ObligingModel as ObligingModel
from offbook.explore.observed_run import Settings as Settings
from offbook.explore.observed_run import find_side_effect as find_side_effect
from offbook.explore.sdk_conversions import SdkConversions as SdkConversions
from offbook.explore.sdk_conversions import describe_form as describe_form
from offbook.explore.sdk_conversions import share_ssl_contexts as share_ssl_contexts
from offbook.explore.search import Counterexample as Counterexample
from offbook.explore.search import Exploration as Exploration
from offbook.explore.search import explore as explore
from offbook.explore.search import replay as replay
from offbook.explore.shrinking import shrink as shrink

CAPABILITY: Capability
