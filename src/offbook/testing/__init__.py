"""The suites that every source and every subject must pass, for those who write one.

from offbook.testing import SourceConformance

class TestMine(SourceConformance):
    def source(self):
        return Mine()
"""

from offbook.testing.source import SourceConformance
from offbook.testing.subject import SubjectConformance

__all__ = ["SourceConformance", "SubjectConformance"]
