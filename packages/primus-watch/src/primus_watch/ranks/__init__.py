"""Which rank is slow in a run that trains: the time of each rank's own work, compared."""
