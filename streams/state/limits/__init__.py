"""fleethpa's own limits on a write that an evaluation wants, one file each; `table` has them in their order."""
