"""Checks: assertions, snapshots and judges that read a trace and return verdicts."""
