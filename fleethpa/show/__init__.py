"""How anything looks: tables, formats, words, times, charts and kubectl's texts. Knows nothing of a fleet."""
