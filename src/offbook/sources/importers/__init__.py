"""Reads what other tools have written down of a run, one file for each format."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "importer": "ImportedExchange MAIN_HAT Skipped TraceRecord as_fields all_importers"
        " read_trace write_cassette write_mocks",
        "otlp": "OtlpImporter",
    },
)
