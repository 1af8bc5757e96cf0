"""What has run, for people: list runs, show one, compare two, follow their logs."""
