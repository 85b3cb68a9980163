"""How the past is read, verified and replayed."""
