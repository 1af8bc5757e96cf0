"""Checks of the network: this node's ports, the way to other nodes, and what all sum up together."""
