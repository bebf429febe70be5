"""An agent that calls a remote agent with the client of the A2A SDK 0.3."""

import asyncio
import os
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory, create_text_message_object


async def main() -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, os.environ["OFFBOOK_AGENT_BILLING"]).get_agent_card()
        config = ClientConfig(httpx_client=http, streaming="plain" not in sys.argv)
        message = create_text_message_object(content=sys.argv[1])
        async for event in ClientFactory(config).create(card).send_message(message):
            sys.stdout.write(str(event))


asyncio.run(main())
