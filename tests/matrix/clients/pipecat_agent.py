"""Pipecat: a pipeline of texts, with a tool."""

import asyncio
from typing import Any

from harness import MODEL, OPENAI, PROMPT, print_result
from harness import get_weather as find_weather
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import EndWorkerFrame, LLMFullResponseEndFrame, LLMRunFrame, LLMTextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.workers.runner import WorkerRunner


async def get_weather(params: FunctionCallParams, city: str) -> None:
    """Get the weather in a city.

    Args:
        city: The name of the city.
    """
    await params.result_callback(find_weather(city))


class Speaker(FrameProcessor):
    """Collects the texts that would be spoken, and ends the pipeline after them."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    async def process_frame(self, frame: Any, direction: FrameDirection) -> None:
        """Note a text, and pass it on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self.texts.append(frame.text)
        elif isinstance(frame, LLMFullResponseEndFrame) and self.texts:
            await self.push_frame(EndWorkerFrame(), FrameDirection.UPSTREAM)
        await self.push_frame(frame, direction)


async def run() -> str:
    settings = OpenAILLMService.Settings(model=MODEL)
    model = OpenAILLMService(api_key="none", base_url=OPENAI, settings=settings)
    model.register_direct_function(get_weather)
    messages: Any = [{"role": "user", "content": PROMPT}]
    context = LLMContext(messages, tools=ToolsSchema(standard_tools=[get_weather]))
    pair, speaker = LLMContextAggregatorPair(context), Speaker()
    worker = PipelineWorker(Pipeline([pair.user(), model, speaker, pair.assistant()]))
    await worker.queue_frame(LLMRunFrame())
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    return "".join(speaker.texts)


print_result(asyncio.run(run()), "pipecat-ai", "openai")
