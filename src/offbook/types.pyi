from offbook.exchange.messages import History as History
from offbook.exchange.messages import Image as Image
from offbook.exchange.messages import Message as Message
from offbook.exchange.messages import RawBlock as RawBlock
from offbook.exchange.messages import Text as Text
from offbook.exchange.messages import Thinking as Thinking
from offbook.exchange.messages import ToolCall as ToolCall
from offbook.exchange.messages import ToolResult as ToolResult
from offbook.exchange.messages import user as user
from offbook.exchange.model import ModelSource as ModelSource
from offbook.exchange.model import Reply as Reply
from offbook.exchange.model import Request as Request
from offbook.exchange.model import StopReason as StopReason
from offbook.exchange.model import Tool as Tool
from offbook.exchange.model import Usage as Usage
from offbook.sources.mocks.mock_recording import MockRecording as MockRecording
from offbook.subjects.session.extensions import Api as Api
from offbook.subjects.session.hooks import Context as Context
from offbook.subjects.session.hooks import HookEvent as HookEvent
from offbook.subjects.session.session import AgentSession as AgentSession
from offbook.subjects.session.session import Skill as Skill
from offbook.subjects.session.tools import ToolOutcome as ToolOutcome
from offbook.subjects.subject import RunContext as RunContext
from offbook.subjects.subject import Subject as Subject

__all__: list[str]
