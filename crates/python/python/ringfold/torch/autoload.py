"""What torch runs when it is imported, by an entry point of the package."""

import os


def load():
    """Puts ringfold in Gloo's place if RINGFOLD_TORCH_TAKE_OVER_GLOO is 1.

    On a torch without backends in Python it only registers a name whose use explains that.
    """
    from ringfold import torch as here

    reason = here.unsupported()
    if reason:
        explain(reason)
    elif os.environ.get("RINGFOLD_TORCH_TAKE_OVER_GLOO") == "1":
        here.register("gloo")


def explain(reason):
    """Registers a backend that raises the reason."""
    from torch import distributed

    def create(*_):
        raise RuntimeError(reason)

    if distributed.is_available():
        distributed.Backend.register_backend("ringfold", create, devices=["cpu"])
