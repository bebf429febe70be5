"""Generated models: a search for the behaviour of a model that breaks an agent, and a first test.

from offbook.explore import explore
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Explore",
    commands={
        "init": CommandEntry(
            "Write a first test for the agent of a project.",
            "offbook.explore.init_cli:init",
            heading="Start",
        ),
        "explore": CommandEntry(
            "Search for replies of the model that break an agent.",
            "offbook.explore.explore_cli:explore_command",
        ),
        "bench": CommandEntry(
            "Measure a run several times, and compare.", "offbook.explore.explore_cli:bench_command"
        ),
    },
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "invariants": "at_most ends_within never_before no_secret_in_answer",
        "moves": "find_values",
        "search": "explore replay",
        "tool_policy": "powerful untrusted",
    },
    "CAPABILITY",
    internal={
        "broken_tools": "find_tool_code find_tool_values",
        "candidates": "SDKS scan_project",
        "code_constants": "find_constants",
        "corpus": "Corpus StoredScript choose_opening",
        "argument_values": "ArgumentValues Draw NOTHING learn list_near_texts",
        "moves": "GeneratedCall Move Place build_turns render_script render_tests resolve"
        " run_rendered",
        "obliging_model": "ObligingModel Settings",
        "sdk_conversions": "SdkConversions describe_form share_ssl_contexts",
        "search": "Counterexample Exploration",
        "authority": "is_refusal",
        "plain_tools": "PlainTools",
        "shrinking": "shrink",
    },
)
