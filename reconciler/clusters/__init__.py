"""The client of one member cluster: credentials, exec plugins, discovery, errors, permissions."""
