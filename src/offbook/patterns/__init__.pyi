from offbook.capability import Capability
from offbook.patterns.definition import LoadedPattern as LoadedPattern
from offbook.patterns.definition import Pattern as Pattern
from offbook.patterns.definition import cell as cell
from offbook.patterns.definition import computed as computed
from offbook.patterns.definition import default as default
from offbook.patterns.definition import effect as effect
from offbook.patterns.definition import expect_cell as expect_cell
from offbook.patterns.definition import expect_handler as expect_handler
from offbook.patterns.definition import handler as handler
from offbook.patterns.definition import load_pattern as load_pattern
from offbook.patterns.definition import pattern as pattern
from offbook.patterns.graph import Computed as Computed
from offbook.patterns.graph import Store as Store
from offbook.patterns.harness import PatternHarness as PatternHarness
from offbook.patterns.harness import create_harness as create_harness
from offbook.patterns.pattern_component import PatternComponent as PatternComponent
from offbook.patterns.patterns_cli import find_left_out as find_left_out
from offbook.patterns.patterns_cli import find_tests as find_tests
from offbook.patterns.patterns_cli import run_tests as run_tests
from offbook.patterns.patterns_cli import scaffold_test as scaffold_test
from offbook.patterns.patterns_cli import write_scaffold as write_scaffold
from offbook.patterns.runtime import Cell as Cell
from offbook.patterns.runtime import Runtime as Runtime
from offbook.patterns.runtime import Stream as Stream
from offbook.patterns.steps import run_steps as run_steps
from offbook.patterns.steps import run_steps_file as run_steps_file

CAPABILITY: Capability
