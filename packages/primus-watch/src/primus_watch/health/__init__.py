"""How the GPUs and network ports of this node are while a run trains."""
