"""What takes the place of what the metrics ask for, one file each; `table` has them in their order."""
