from offbook.sources.mocks.mock_file import Mock as Mock
from offbook.sources.mocks.mock_file import lint_mocks as lint_mocks
from offbook.sources.mocks.mock_file import parse_mocks as parse_mocks
from offbook.sources.mocks.mock_file import read_mocks as read_mocks
from offbook.sources.mocks.mock_recording import MockRecording as MockRecording
from offbook.sources.mocks.mocks import RECEIPTS as RECEIPTS
from offbook.sources.mocks.mocks import Mocks as Mocks
from offbook.sources.mocks.mocks import Receipt as Receipt
