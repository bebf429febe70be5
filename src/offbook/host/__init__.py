"""Host capabilities: what code asks of its host, mocked under test and real elsewhere."""
