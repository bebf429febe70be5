"""Every example in the pages is run."""
