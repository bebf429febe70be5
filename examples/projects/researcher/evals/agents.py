"""The researcher as the evals run it."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OPENAI_API_KEY", "none")  # never sent: the model is scripted

from researcher import make_researcher

agent = make_researcher()
