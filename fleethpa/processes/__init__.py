"""The processes that run for long on the user's side: the scheduler, and how `run` starts each part."""
