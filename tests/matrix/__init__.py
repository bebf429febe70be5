"""Every client that Offbook claims to speak with, each in the versions and the way it was tried."""
