"""What every command shares: its session, its configuration, its errors, and where the past is read from."""
