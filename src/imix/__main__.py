"""`python -m imix`, needed for torchrun."""

from imix.cli import main

main()
