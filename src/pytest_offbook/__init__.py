"""The pytest plugin of Offbook. It stays outside the package, so that pytest starts without it."""
