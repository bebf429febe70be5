"""A Ray cluster of two node processes on this machine, for `test_cluster.py`.

Prints the address. Each line on stdin is a command: `kill` ends the second node at once; the end
of stdin ends the cluster.
"""

import sys
from importlib import import_module
from typing import Any

MEMORY = 100 * 1024 * 1024


def main() -> None:
    """Run the cluster until stdin ends."""
    ray: Any = import_module("ray.cluster_utils")  # only in its own home
    node = {"num_cpus": 1, "object_store_memory": MEMORY}
    cluster = ray.Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        second = cluster.add_node(**node)
        cluster.wait_for_nodes()
        sys.stdout.write(f"{cluster.address}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            if line.strip() == "kill":
                cluster.remove_node(second, allow_graceful=False)
                sys.stdout.write("killed\n")
                sys.stdout.flush()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
