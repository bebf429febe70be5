"""The providers' own wire formats, one file each."""
