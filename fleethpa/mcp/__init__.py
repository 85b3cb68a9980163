"""A server of the Model Context Protocol over the read verbs. `mcpcommand.py` has the verb."""
