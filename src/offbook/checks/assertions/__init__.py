"""What can be asserted of a run, in the words of a test tool: one struct for each type."""
