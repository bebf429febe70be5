"""The client of OpenAI wants a key. It is never sent: the model is scripted."""

import os

os.environ.setdefault("OPENAI_API_KEY", "none")
