"""An agent that calls a remote agent with the client of the official A2A SDK.

It sends its prompt, and answers a question with 7. Its own model summarizes the answer.
"""

import asyncio
import os
import sys

import httpx
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_stream_response_text, new_text_message
from a2a.types import Role, SendMessageRequest, StreamResponse, TaskState

URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"


async def main() -> None:
    texts: list[str] = []
    async with httpx.AsyncClient(timeout=60) as http:
        config = ClientConfig(httpx_client=http, streaming="plain" not in sys.argv)
        client = await create_client(os.environ["OFFBOOK_AGENT_BILLING"], config)
        message = new_text_message(sys.argv[1], role=Role.ROLE_USER)
        while message is not None:
            sent, message = message, None
            response: StreamResponse
            async for response in client.send_message(SendMessageRequest(message=sent)):
                texts.append(get_stream_response_text(response))
                if response.HasField("task"):
                    status, ids = response.task.status, (response.task.id, response.task.context_id)
                elif response.HasField("status_update"):
                    status = response.status_update.status
                    ids = (response.status_update.task_id, response.status_update.context_id)
                else:
                    continue
                if status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
                    message = new_text_message(
                        "7", role=Role.ROLE_USER, task_id=ids[0], context_id=ids[1]
                    )
        content = " ".join(text for text in texts if text)
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        answer = await http.post(URL, json=body)
    sys.stdout.write(answer.json()["choices"][0]["message"]["content"])


asyncio.run(main())
