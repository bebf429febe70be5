"""Time, ids, threads and the network, under control: two runs of a test are the same."""
