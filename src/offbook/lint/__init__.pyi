from offbook.capability import Capability
from offbook.lint.lint_cli import lint as lint
from offbook.lint.lint_rules import RULES as RULES
from offbook.lint.lint_rules import fix_paths as fix_paths
from offbook.lint.lint_rules import lint_paths as lint_paths

CAPABILITY: Capability
