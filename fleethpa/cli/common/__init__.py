"""What the verbs of the command line share, by subject."""
