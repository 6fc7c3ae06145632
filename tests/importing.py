"""Which thread imports a module that a daemon imports late."""

from __future__ import annotations

import importlib.abc
import sys
import threading

import pytest


def anew(monkeypatch: pytest.MonkeyPatch, name: str) -> list[threading.Thread]:
    """Have a module imported anew by whoever needs it next; return the threads that do, filled as they do."""
    importers: list[threading.Thread] = []

    class Seen(importlib.abc.MetaPathFinder):
        def find_spec(self, wanted: str, *_: object) -> None:
            if wanted == name:
                importers.append(threading.current_thread())

    importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(name)
    monkeypatch.setattr(sys, "meta_path", [Seen(), *sys.meta_path])
    return importers
