"""The client with the settings of the library huggingface_hub and of this machine."""

from __future__ import annotations

from importlib.metadata import version

from primus_data.fetching.network import Client
from primus_machine.errors import MachineError

__all__ = ["client"]


def client(give_up_after_s: float) -> Client:
    """A client that retries for so long.

    Raises:
        MachineError: the proxy that the environment names cannot be used.
    """
    from huggingface_hub import constants

    agent = f"primus-data/{version('primus-data')} huggingface_hub/{version('huggingface_hub')}"
    try:
        return Client(give_up_after_s=give_up_after_s, read_s=float(constants.HF_HUB_DOWNLOAD_TIMEOUT), agent=agent)
    except (ValueError, ImportError):  # whose text may hold the proxy's password
        raise MachineError(
            "the proxy of the environment cannot be used",
            why="HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is not an address, or needs another package",
            fix="set it to http://HOST:PORT; for socks5, run: pip install 'httpx[socks]'",
        ) from None
