"""A cluster with an agent inside it: the agent, the router that copies decisions to it, and the stand-in."""
