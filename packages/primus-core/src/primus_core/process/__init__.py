"""One process to its end: started, watched, ended with all that it started."""
