from offbook.capability import Capability
from offbook.conformance.case_worker import send_message as send_message
from offbook.conformance.cases import ERROR as ERROR
from offbook.conformance.cases import EXPECTED as EXPECTED
from offbook.conformance.cases import ConformanceCase as ConformanceCase
from offbook.conformance.cases import SuiteSettings as SuiteSettings
from offbook.conformance.cases import find_cases as find_cases
from offbook.conformance.cases import matches_error as matches_error
from offbook.conformance.cases import matches_filter as matches_filter
from offbook.conformance.cases import read_suite_settings as read_suite_settings
from offbook.conformance.conformance_run import ConformanceResult as ConformanceResult
from offbook.conformance.conformance_run import run_cases as run_cases
from offbook.conformance.conformance_run import start_worker as start_worker

CAPABILITY: Capability
