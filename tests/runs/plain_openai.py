"""As much of `openai` as agents need that run as commands: the SDK takes a second to import."""

import json
import os
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen


class Answer(SimpleNamespace):
    """An object of an answer; a field that it does not have is None."""

    def __getattr__(self, name: str) -> None:
        return None


class OpenAI:
    """A client of the endpoint in the environment."""

    def __init__(self, **_: object) -> None:
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    def _create(self, **body: object) -> Any:
        url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
        request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - a local server
        with urlopen(request) as response:  # noqa: S310 - a local server
            return json.load(response, object_hook=lambda fields: Answer(**fields))
