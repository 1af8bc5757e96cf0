"""The meeting of the nodes of a launch: who has come, and whether their ranks reach each other."""
