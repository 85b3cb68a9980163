"""The router: copies to the topic of each agent what its cluster is to do and to know."""
