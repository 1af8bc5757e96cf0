"""Every figure of a report, from files of run directories: pure, and what is not recorded says so."""
