"""The projects have settings of their own: tests/docs/test_projects.py runs them."""

collect_ignore = ["projects"]
