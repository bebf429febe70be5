"""browser-use: an agent that opens a page of this machine in a browser without a window."""

import asyncio
import os
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

os.environ["ANONYMIZED_TELEMETRY"] = os.environ["BROWSER_USE_CLOUD_SYNC"] = "false"
os.environ["BROWSER_USE_VERSION_CHECK"] = "false"

from browser_use import Agent, Browser, ChatOpenAI
from harness import MODEL, OPENAI, PROMPT, print_result

# The browser itself asks for updates, and for a picture: it finds no other machine.
LOCAL_ONLY = ["--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]

PROFILE = str(Path("profile").absolute())


class Page(BaseHTTPRequestHandler):
    """A page of this machine."""

    def do_GET(self) -> None:
        """Send the page."""
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>Weather</title><p>21 degrees in Paris</p>")


async def run(url: str) -> str | None:
    browser = Browser(
        executable_path=shutil.which("chromium"),
        headless=True,
        chromium_sandbox=False,
        enable_default_extensions=False,
        user_data_dir=PROFILE,
        args=LOCAL_ONLY,
    )
    model = ChatOpenAI(model=MODEL, base_url=OPENAI, api_key="none", max_retries=0)
    agent = Agent(
        task=PROMPT,
        llm=model,
        browser=browser,
        initial_actions=[{"navigate": {"url": url}}],
        use_vision=False,
        use_judge=False,
    )
    history = await agent.run(max_steps=2)
    return history.final_result()


with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
    Thread(target=server.serve_forever, daemon=True).start()
    answer = asyncio.run(run(f"http://127.0.0.1:{server.server_port}/"))
    server.shutdown()
print_result(answer, "browser-use")
