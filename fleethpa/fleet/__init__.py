"""What is there now: the state of the fleet, its troubles, and how to find and list what is in it. Writes nothing."""
