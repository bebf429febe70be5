"""The version of Offbook. It is repeated in pyproject.toml: reading that takes 35 ms."""

VERSION = "1.0.0"
