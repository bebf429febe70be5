"""A class that prints its answer while it arrives, with a match statement for its tools."""

import anthropic

TOOLS = [
    {
        "name": "look_up",
        "description": "Look up a term",
        "input_schema": {
            "type": "object",
            "properties": {"term": {"type": "string"}},
            "required": ["term"],
        },
    }
]
TERMS = {"playbook": "a script", "trace": "a recording"}


class Glossary:
    SYSTEM = "You explain terms."

    def __init__(self, client: anthropic.Anthropic, terms: dict[str, str] | None = None) -> None:
        self._client = client
        self._terms = terms or TERMS

    def _execute(self, name: str, arguments: dict) -> str:
        match name:
            case "look_up":
                return self._terms[arguments["term"]]
            case _:
                raise ValueError(name)

    def ask(self, question: str) -> str:
        messages = [{"role": "user", "content": question}]
        while True:
            with self._client.messages.stream(
                model="claude-sonnet-4-5",
                max_tokens=500,
                system=self.SYSTEM,
                tools=TOOLS,
                messages=messages,
            ) as stream:
                for text in stream.text_stream:
                    print(text, end="", flush=True)
                final = stream.get_final_message()
            uses = [block for block in final.content if block.type == "tool_use"]
            if not uses:
                return final.content[-1].text
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": use.id,
                    "content": self._execute(use.name, use.input),
                }
                for use in uses
            ]
            messages.append({"role": "assistant", "content": final.content})
            messages.append({"role": "user", "content": results})
