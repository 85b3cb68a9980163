"""The page: what the commands say, in a browser. It reads, and computes nothing of its own."""
