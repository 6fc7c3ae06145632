"""`python -m everosd`: the same as the command `everosd`."""

from __future__ import annotations

from everosd import cli

if __name__ == "__main__":
    cli.main()
