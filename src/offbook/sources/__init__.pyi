from offbook.sources.live import PROVIDERS as PROVIDERS
from offbook.sources.live import Live as Live
