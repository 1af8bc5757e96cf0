"""hipBLASLt tuning in stages: the shapes of a log, the search for the fastest kernels, the tuning file and its check.

The formats are those of recorded files of several releases. Nothing in this room has run on an AMD GPU yet.
"""
