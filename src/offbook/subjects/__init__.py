"""What is tested."""
