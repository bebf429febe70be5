from offbook.sources.live import PROVIDERS as PROVIDERS
from offbook.sources.live import Live as Live
from offbook.sources.loading import open_source as open_source
from offbook.sources.loading import read_script as read_script
from offbook.sources.matching import UNINDEXED as UNINDEXED
from offbook.sources.matching import AwaitedResults as AwaitedResults
from offbook.sources.matching import GlobIndex as GlobIndex
from offbook.sources.matching import join_values as join_values
