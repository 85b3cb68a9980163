"""What kinds of HPAs there are: of one cluster, and FleetHPAs; `table` chooses."""
