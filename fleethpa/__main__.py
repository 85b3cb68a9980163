"""`python -m fleethpa`."""

from fleethpa.cli.entry import main

main()
