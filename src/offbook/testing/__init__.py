"""The suites that every source, subject and dialect must pass, for those who write one.

from offbook.testing import SourceConformance

class TestMine(SourceConformance):
    def source(self):
        return Mine()
"""

from offbook.testing.dialect_conformance import DialectConformance
from offbook.testing.source_conformance import SourceConformance
from offbook.testing.subject_conformance import SubjectConformance

__all__ = ["DialectConformance", "SourceConformance", "SubjectConformance"]
