from offbook.surfaces.capabilities import CAPABILITIES as CAPABILITIES
from offbook.surfaces.cli.first_steps import PACKAGES as PACKAGES
from offbook.surfaces.cli.first_steps import InstalledTool as InstalledTool
from offbook.surfaces.cli.first_steps import find_installed as find_installed
from offbook.surfaces.cli.first_steps import scan_project as scan_project
from offbook.surfaces.cli.first_steps import write_first_test as write_first_test
