"""Whatever writes to the log: specs, settings, schedules and the hand-over. Asks no questions of the past."""
