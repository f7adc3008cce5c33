#!/usr/bin/env python3
"""Sockets of libsdp for Python, by ctypes, and HTTP over them.

    LIBSDP=DIR/lib/libsdp.so python3 sdpsocket.py tcp localhost:8080 /

gets a page by http.client: over SDP if the server listens by SDP, else over TCP. DIR is where cmd/libsdp/install
has put the library.
"""

import ctypes
import http.client
import io
import os
import sys

SDP_WRITE = 2
SDP_READ = 1
SDP_NEVER = -1
SDP_BY_TCP = 7

_lib = ctypes.CDLL(os.environ.get("LIBSDP", "libsdp.so"), use_errno=True)
_lib.sdp_error.restype = ctypes.c_char_p
for _name, _result, *_arguments in (
    ("dial", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_longlong),
    ("read", ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    ("write", ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    ("shutdown", ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ("deadline", ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong),
    ("get", ctypes.c_longlong, ctypes.c_int, ctypes.c_int),
    ("close", ctypes.c_int, ctypes.c_int),
):
    _function = getattr(_lib, "sdp_" + _name)
    _function.restype, _function.argtypes = _result, _arguments


def _call(name, *arguments):
    """Calls sdp_NAME, and raises OSError, of the class that fits its errno, if that fails."""
    result = getattr(_lib, "sdp_" + name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), _lib.sdp_error().decode())
    return result


class Socket(io.RawIOBase):
    """A connection: what a program needs of socket.socket, as a raw file."""

    def __init__(self, network, address, timeout=None):
        super().__init__()
        self._conn = _call("dial", network.encode(), address.encode(), self._time(timeout))

    @staticmethod
    def _time(seconds):
        return SDP_NEVER if seconds is None else int(seconds * 1e9)

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, buffer):
        view = memoryview(buffer).cast("B")
        if not view.nbytes:
            return 0
        return _call("read", self._conn, ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes)

    def write(self, data):
        data = bytes(data)
        return _call("write", self._conn, data, len(data))

    def sendall(self, data):
        view = memoryview(data).cast("B")
        while view.nbytes:
            view = view[self.write(view):]

    def recv(self, size):
        return self.read(size)

    def makefile(self, mode, *arguments):
        return io.BufferedReader(_Shared(self))

    def settimeout(self, seconds):
        """Limits all calls from now on together, not each one."""
        _call("deadline", self._conn, SDP_READ | SDP_WRITE, self._time(seconds))

    def shutdown_write(self):
        _call("shutdown", self._conn, SDP_WRITE)

    def by_tcp(self):
        return bool(_call("get", self._conn, SDP_BY_TCP))

    def close(self):
        if not self.closed:
            super().close()
            _call("close", self._conn)


class _Shared(io.RawIOBase):
    """What reads from a Socket, and leaves it open."""

    def __init__(self, sock):
        super().__init__()
        self._sock = sock

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._sock.readinto(buffer)


class HTTPConnection(http.client.HTTPConnection):
    """http.client's, over a Socket."""

    def __init__(self, network, address, timeout=None):
        super().__init__(address)
        self._dialled = network, address, timeout

    def connect(self):
        self.sock = Socket(*self._dialled)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: sdpsocket.py sdp|tcp HOST:PORT PATH")
    connection = HTTPConnection(sys.argv[1], sys.argv[2], timeout=120)
    connection.connect()
    by_tcp = connection.sock.by_tcp()
    connection.request("GET", sys.argv[3])
    answer = connection.getresponse()
    print(answer.status, answer.read().decode(), "by TCP" if by_tcp else "by SDP")
    connection.close()
