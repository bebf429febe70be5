"""A text and its summary by a model; `stop` ends a request that takes too long."""

import openai

from offbook.patterns import Cell, computed, default, handler, pattern


@handler
async def summarise(event, text, summary, status):
    status.set("working")
    client = openai.AsyncOpenAI(api_key="in tests, no key is needed", max_retries=0)
    reply = await client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "user", "content": f"Summarise in one sentence: {text.get()}"}],
    )
    summary.set(reply.choices[0].message.content)
    status.set("done")


@handler
def stop(event, summarising):
    summarising.cancel()


@pattern
def summariser(
    text: Cell[str] = default(""),
    summary: Cell[str] = default(""),
    status: Cell[str] = default("idle"),
):
    summarising = summarise(text=text, summary=summary, status=status)
    return {
        "summary": summary,
        "status": status,
        "saved": computed(lambda: len(text.get()) - len(summary.get()) if summary.get() else 0),
        "summarise": summarising,
        "stop": stop(summarising=summarising),
    }
