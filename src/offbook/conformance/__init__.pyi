from offbook.capability import Capability
from offbook.conformance.case_worker import send_message as send_message
from offbook.conformance.conformance_cli import ERROR as ERROR
from offbook.conformance.conformance_cli import EXPECTED as EXPECTED
from offbook.conformance.conformance_cli import ConformanceCase as ConformanceCase
from offbook.conformance.conformance_cli import ConformanceResult as ConformanceResult
from offbook.conformance.conformance_cli import SuiteSettings as SuiteSettings
from offbook.conformance.conformance_cli import find_cases as find_cases
from offbook.conformance.conformance_cli import matches_error as matches_error
from offbook.conformance.conformance_cli import matches_filter as matches_filter
from offbook.conformance.conformance_cli import read_suite_settings as read_suite_settings
from offbook.conformance.conformance_cli import run_cases as run_cases
from offbook.conformance.conformance_cli import start_worker as start_worker

CAPABILITY: Capability
