"""Who is fit to train: from what all nodes found, now and before."""
