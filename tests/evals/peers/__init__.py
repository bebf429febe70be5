"""Suites of other tools, and the scripts with which these tools wrote them."""
