"""Where the command `everosd` begins, and `python -m everosd`."""

from __future__ import annotations

import sys

from everosd.cli import failure, serve


def main() -> None:
    """Run `everosd` with the process's arguments and exit with its code.

    `serve` spelled out in full goes past the framework of commands: what a daemon imports stays in memory for months.
    """
    options = serve.asked(sys.argv[1:])
    if options is not None:
        port = options.get("port")
        given = None if port is None else int(port)
        failure.ends(lambda: serve.run(options.get("root"), options.get("host"), given))
    from everosd.cli import app  # noqa: PLC0415  # see above

    app.main()


if __name__ == "__main__":
    main()
