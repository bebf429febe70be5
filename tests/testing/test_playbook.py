"""A playbook keeps what every source promises."""

from offbook import ModelSource, Playbook, Request, call, fail, role, say, think
from offbook.testing import SourceConformance


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
