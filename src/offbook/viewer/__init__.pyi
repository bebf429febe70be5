from offbook.capability import Capability
from offbook.viewer.html_page import PageTrace as PageTrace
from offbook.viewer.html_page import encode_event as encode_event
from offbook.viewer.html_page import encode_record as encode_record
from offbook.viewer.html_page import read_comparison as read_comparison
from offbook.viewer.html_page import read_run_directory as read_run_directory
from offbook.viewer.html_page import read_sources as read_sources
from offbook.viewer.html_page import render_page as render_page
from offbook.viewer.html_page import render_traces as render_traces
from offbook.viewer.live_server import LiveFeed as LiveFeed
from offbook.viewer.live_server import LiveServer as LiveServer
from offbook.viewer.live_server import ReviewDesk as ReviewDesk

CAPABILITY: Capability
