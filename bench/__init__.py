"""Measurements of the installed `everosd`, driven from outside over HTTP, beside the budgets they are held to.

In: nothing but the `everosd` command. Out: one table. `python -m bench --help` says what can be chosen.
"""

from __future__ import annotations
