"""`python -m fleethpa`."""

from fleethpa.cli import main

main()
