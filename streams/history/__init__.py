"""How the past is read, archived as it is made, verified and replayed."""
