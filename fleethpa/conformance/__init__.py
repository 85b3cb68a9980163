"""The conformance runner: the engine's answers against upstream's, case by case, with nothing dropped."""
