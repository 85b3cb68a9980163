"""How the past is kept: segments, manifests, snapshots, signed checkpoints."""
