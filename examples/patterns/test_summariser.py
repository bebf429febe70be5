"""A scripted model under a pattern."""

import openai
from summariser import summariser

from offbook import drive, fail, say, when
from offbook.patterns import create_harness

SCRIPT = [when("Summarise in one sentence: A long text.", [say("Short.")])]


def test_the_summary_is_that_of_the_model(tmp_path):
    with create_harness(playbook=SCRIPT, trace=tmp_path / "trace.jsonl") as h:
        loaded = h.load(summariser, {"text": "A long text."})
        loaded.result.summarise.send()
        h.settled()
        assert (loaded.result.summary, loaded.result.saved) == ("Short.", 6)
        # The model and the cells are in one trace: `offbook show`, `offbook view`.
        names = [event.event for event in h.events.all]
        assert names.index("cell.handle") < names.index("model.reply") < len(names)


def test_an_error_of_the_model_leaves_everything_as_it_was():
    script = [when("Summarise", [fail("overloaded", status=503)])]
    with create_harness(playbook=script, expect_errors=1) as h:
        loaded = h.load(summariser, {"text": "A long text."})
        loaded.result.summarise.send()
        h.settled()
        assert (loaded.result.status, loaded.result.summary) == ("idle", "")
        assert isinstance(h.errors[0], openai.APIStatusError)


def summarise_with_pattern(prompt):
    with create_harness() as h:
        loaded = h.load(summariser, {"text": prompt})
        loaded.result.summarise.send()
        h.settled()
        return loaded.result.summary


def test_a_pattern_is_an_agent_like_any_other():
    with drive(summarise_with_pattern) as rehearsal:
        run = rehearsal.run(when("A long text.", [say("Short.")]))
        assert run.output == "Short."
        assert any(event.event == "cell.write" for event in run.events.all)
