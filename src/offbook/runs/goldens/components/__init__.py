"""What goldens are recorded from: a protocol, and those of our own that have one."""
