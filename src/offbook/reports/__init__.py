"""Reports: a trace and its verdicts, rendered for people and for other programs."""
