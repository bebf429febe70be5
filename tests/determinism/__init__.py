"""What keeps a run to itself: the network guard, and patches that go away again."""
