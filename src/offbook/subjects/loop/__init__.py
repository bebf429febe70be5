"""A loop of hats: an agent is called again and again, and events decide which hat it wears."""
