"""The conformance suites: our own kinds pass them, broken ones do not."""
