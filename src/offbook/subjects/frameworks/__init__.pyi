from offbook.subjects.frameworks.claude_agent import ClaudeAgent as ClaudeAgent
from offbook.subjects.frameworks.framework import FrameworkSubject as FrameworkSubject
from offbook.subjects.frameworks.framework import ToolWatch as ToolWatch
from offbook.subjects.frameworks.framework import parameter_names as parameter_names
from offbook.subjects.frameworks.framework import wrap_agent as wrap_agent
from offbook.subjects.frameworks.inspect_ai import InspectAI as InspectAI
from offbook.subjects.frameworks.openai_agents import OpenAIAgents as OpenAIAgents
