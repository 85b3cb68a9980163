"""One module per verb (or family of verbs): options in, calls, text out. Heavy imports happen inside the functions."""
