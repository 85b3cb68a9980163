"""Everything that crosses a topic or a file: wire types, the one codec, quantities and the HPA API types. No I/O."""
