"""The command line: arguments come in; text, JSON and an exit code go out.

Commands talk to the daemon that serves the root where there is one, and work on the files under the root's lock where
there is none, so that they never race it. Exit codes are the daemon's (`everosd.daemon`).
"""
