"""`python -m rlm_memory.cli`, where the folder of scripts is not on the PATH."""

from rlm_memory.cli import main

main()
