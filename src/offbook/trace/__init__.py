"""What happened: the one thing that all stages share."""
