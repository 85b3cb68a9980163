"""`python -m fleethpa`."""

from fleethpa.cli.main import main

main()
