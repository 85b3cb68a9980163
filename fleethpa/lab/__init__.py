"""What only development needs: simulated clusters, an embedded broker, the demo. The image leaves it out."""
