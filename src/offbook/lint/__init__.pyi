from offbook.capability import Capability
from offbook.lint.lint_cli import RULES as RULES
from offbook.lint.lint_cli import fix_paths as fix_paths
from offbook.lint.lint_cli import lint as lint
from offbook.lint.lint_cli import lint_paths as lint_paths

CAPABILITY: Capability
