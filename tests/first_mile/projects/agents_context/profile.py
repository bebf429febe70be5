from dataclasses import dataclass

from agents import Agent, RunContextWrapper, Runner, function_tool
from pydantic import BaseModel


@dataclass
class UserInfo:
    name: str
    uid: int


class Profile(BaseModel):
    summary: str
    age: int


@function_tool
async def fetch_user_age(wrapper: RunContextWrapper[UserInfo]) -> str:
    """Fetch the age of the user. Call this function to get user's age information."""
    return f"The user {wrapper.context.name} is 47 years old"


@function_tool
def send_welcome_mail(address: str) -> str:
    """Send a mail to a new user."""
    raise OSError("no mail server in tests")


class ProfileService:
    def build_agent(self) -> Agent[UserInfo]:
        return Agent[UserInfo](
            name="Assistant",
            instructions="You describe the user.",
            tools=[fetch_user_age, send_welcome_mail],
            output_type=Profile,
        )


assistant = ProfileService().build_agent()


async def main():
    result = await Runner.run(assistant, "Who am I?", context=UserInfo(name="John", uid=123))
    print(result.final_output)
