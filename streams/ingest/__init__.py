"""Public topics in, one ordered log out. Stateless."""
