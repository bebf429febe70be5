"""The wire formats of the providers: one folder per dialect, and the modules that they share."""
