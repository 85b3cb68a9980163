"""HorizontalPodAutoscalers as kubectl shows them, to the byte: the table of `get`, the text of `describe`, ages."""
