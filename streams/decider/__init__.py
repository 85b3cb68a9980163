"""The Faust app: the log in, tables, decisions out. A thin adapter around streams.state."""
