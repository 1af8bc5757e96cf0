"""The runtime `direct`: the ranks are processes of this machine."""
