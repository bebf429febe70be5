from offbook.sources.inprocess.interceptor import CoroutineRunner as CoroutineRunner
from offbook.sources.inprocess.patching import HttpClientTransport as HttpClientTransport
from offbook.sources.inprocess.patching import Patcher as Patcher
from offbook.sources.inprocess.patching import intercept as intercept
from offbook.sources.inprocess.telemetry import disable_telemetry as disable_telemetry
