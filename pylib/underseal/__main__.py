"""`python -m underseal`: the command line."""

from underseal.cli import main

main(prog_name="underseal")
