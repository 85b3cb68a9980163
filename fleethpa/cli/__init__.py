"""The verbs, nothing else. Verbs do not import each other; what they share is in the rooms below."""
