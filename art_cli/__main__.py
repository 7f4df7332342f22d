"""`python -m art_cli`: the same as `art`, for debuggers and for systems without the script."""

from art_cli.cli.main import main

main()
