from offbook.surfaces.capabilities import CAPABILITIES as CAPABILITIES
