"""The clients of this process are answered without a socket."""
