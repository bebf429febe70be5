"""The doors through which time, names and chance come in."""
