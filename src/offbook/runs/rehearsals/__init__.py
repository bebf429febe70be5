"""One subject, a script for its model, and the trace of it all."""
