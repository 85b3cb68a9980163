"""Whatever writes to the log: specs, settings, schedules, rollouts and the hand-over. Asks no questions of the past."""
