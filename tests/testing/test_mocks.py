"""Mocks keep what every source promises."""

from offbook import Mocks, ModelSource, Request
from offbook.testing import SourceConformance


class TestInOrder(SourceConformance):
    def source(self) -> ModelSource:
        calls = [{"name": "echo", "args": {"text": "a"}}, {"name": "echo", "id": "mine"}]
        return Mocks([{"text": "Hello."}, {"tool_calls": calls}, *[{"text": "Bye."}] * 9])

    def errors(self) -> tuple[ModelSource, Request]:
        return Mocks([{"error": {"category": "rate_limit"}}]), self.requests()[0]
