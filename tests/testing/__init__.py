"""Our implementations pass the conformance suites, wrong ones do not."""
