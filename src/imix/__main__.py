"""`python -m imix`, for torchrun."""

from imix.cli import main

main()
