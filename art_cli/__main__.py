"""`python -m art_cli`: as `art`, for debuggers and where no script is on the path."""

from art_cli.cli.main import main

main()
