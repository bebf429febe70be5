"""The commands of this checkout report what they find."""
