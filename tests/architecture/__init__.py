"""What holds the shape of the project: borders, imports, public names, the lock."""
