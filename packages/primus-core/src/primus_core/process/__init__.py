"""One process to its end: started, watched, its output read and masked, ended with all that it started."""
