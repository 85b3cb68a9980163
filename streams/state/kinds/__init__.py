"""What kinds of HPAs there are, one file each; `table` chooses."""
