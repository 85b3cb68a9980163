"""The development stack: embedded broker and simulated clusters."""
