"""How answers look: tables that never truncate, machine formats, colour only where a person looks."""
