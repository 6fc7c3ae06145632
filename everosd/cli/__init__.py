"""The command line: arguments come in; text, JSON and an exit code go out.

Commands talk to the daemon that serves the root where there is one, and work on the files under the root's lock where
there is none, so that they never race it. Exit codes are the daemon's (`everosd.daemon`).
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run `everosd` with the process's arguments and exit with its code."""
    from everosd.cli import failure, serve

    options = serve.asked(sys.argv[1:])
    if options is not None:
        port = options.get("port")
        given = None if port is None else int(port)
        failure.ends(lambda: serve.run(options.get("root"), options.get("host"), given))
    from everosd.cli.app import main as run

    run()
