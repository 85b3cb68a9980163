"""Who scales a cluster while the hub is away: the protocol, without I/O."""
