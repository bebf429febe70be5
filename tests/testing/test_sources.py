"""Our sources pass the suite for sources."""

from offbook import Mocks, ModelSource, Playbook, Request, call, fail, role, say, think
from offbook.testing import SourceConformance


class TestMocks(SourceConformance):
    def source(self) -> ModelSource:
        calls = [{"name": "echo", "args": {"text": "a"}}, {"name": "echo", "id": "mine"}]
        return Mocks([{"text": "Hello."}, {"tool_calls": calls}, *[{"text": "Bye."}] * 9])

    def errors(self) -> tuple[ModelSource, Request]:
        return Mocks([{"error": {"category": "rate_limit"}}]), self.requests()[0]


class TestPlaybook(SourceConformance):
    def source(self) -> ModelSource:
        playbook = Playbook()
        two = [call("echo", {"text": "a"}), call("echo", lambda: {"text": "b"})]
        playbook.load(
            role("any", [say("Hello."), two, think("Well."), say("Bye.")], tools=["echo"])
        )
        return playbook

    def errors(self) -> tuple[ModelSource, Request]:
        playbook = Playbook()
        playbook.load(role("any", [fail("slow down", status=429, retry_after=2)], tools=["echo"]))
        return playbook, self.requests()[0]
