"""Conformance suites for authors of sources, subjects and dialects.

Subclass a suite in a test file; pytest collects its tests:

    from offbook.testing import SourceConformance

    class TestMySource(SourceConformance):
        def source(self):
            return MySource()
"""

from offbook.testing.dialect_conformance import DialectConformance
from offbook.testing.source_conformance import SourceConformance
from offbook.testing.subject_conformance import SubjectConformance

__all__ = ["DialectConformance", "SourceConformance", "SubjectConformance"]
