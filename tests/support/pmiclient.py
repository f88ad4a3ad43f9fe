"""A client of PMI-1 (RFC 13) for the tasks of tests: it imports the standard library alone."""

from __future__ import annotations

import os
import socket


class PmiClient:
    """The connection of this task."""

    def __init__(self) -> None:
        self.rank = int(os.environ["PMI_RANK"])
        self.size = int(os.environ["PMI_SIZE"])
        self._socket = socket.socket(fileno=int(os.environ["PMI_FD"]))
        self._lines = self._socket.makefile("r", newline="\n")

    def send(self, line: str) -> None:
        """Sends a line."""
        self._socket.sendall(f"{line}\n".encode())

    def request(self, line: str) -> dict[str, str]:
        """Sends a request. Returns the tuples of its response; a value is the rest of the line."""
        self.send(line)
        return self.response()

    def response(self) -> dict[str, str]:
        """The next response; empty at the end of the connection."""
        head, found, value = self._lines.readline().rstrip("\n").partition(" value=")
        tuples = dict(word.split("=", 1) for word in head.split())
        return tuples | ({"value": value} if found else {})

    def init(self) -> str:
        """Negotiates the version. Returns the name of the key-value space."""
        response = self.request("cmd=init pmi_version=1 pmi_subversion=1")
        assert response["pmi_version"] == "1", response
        return self.request("cmd=get_my_kvsname")["kvsname"]

    def barrier(self) -> int:
        """Waits for the other tasks. Returns the code."""
        return int(self.request("cmd=barrier_in")["rc"])

    def finalize(self) -> None:
        """Ends the use of PMI."""
        assert self.request("cmd=finalize")["cmd"] == "finalize_ack"
        self._lines.close()
        self._socket.close()
