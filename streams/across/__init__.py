"""Pure: one total over several clusters, its division among them, and the bookkeeping of what each may have."""
