"""Opens an HDF5 file as it stands on disk, whatever its writer is doing or has died of.

A file in SWMR mode carries a mark in its superblock, which plain readers refuse and which
stays there after a kill. The library's own SWMR readers accept it, but wait for ever on a
truncated file and need a file system with POSIX semantics. Here the library sees the file
through a window that shows the superblock unmarked, so nothing is copied, locked or
written, and damage is an error at once. SWMR writers flush parts before what points at
them, hence a snapshot of a live file is consistent up to the shortest column.

Format: HDF5 File Format Specification 3.0, section II.A (superblock versions 2 and 3).
"""
import io
import os
import struct
import time

import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUPERBLOCK_BYTES = 48  # versions 2 and 3 with 8-byte offsets
MASK = 0xFFFFFFFF


class Damaged(Exception):
    """The file is shorter than it says, or no HDF5 file."""


def lookup3(data):
    """Bob Jenkins' hashlittle(data, 0), data not empty: the checksum of HDF5 metadata."""

    def rot(x, k):
        return ((x << k) | (x >> (32 - k))) & MASK

    a = b = c = (0xDEADBEEF + len(data)) & MASK
    i = 0
    while len(data) - i > 12:
        x, y, z = struct.unpack_from("<3I", data, i)
        a, b, c = (a + x) & MASK, (b + y) & MASK, (c + z) & MASK
        a = ((a - c) & MASK) ^ rot(c, 4)
        c = (c + b) & MASK
        b = ((b - a) & MASK) ^ rot(a, 6)
        a = (a + c) & MASK
        c = ((c - b) & MASK) ^ rot(b, 8)
        b = (b + a) & MASK
        a = ((a - c) & MASK) ^ rot(c, 16)
        c = (c + b) & MASK
        b = ((b - a) & MASK) ^ rot(a, 19)
        a = (a + c) & MASK
        c = ((c - b) & MASK) ^ rot(b, 4)
        b = (b + a) & MASK
        i += 12
    x, y, z = struct.unpack("<3I", data[i:].ljust(12, b"\0"))
    a, b, c = (a + x) & MASK, (b + y) & MASK, (c + z) & MASK
    c = ((c ^ b) - rot(b, 14)) & MASK
    a = ((a ^ c) - rot(c, 11)) & MASK
    b = ((b ^ a) - rot(a, 25)) & MASK
    c = ((c ^ b) - rot(b, 16)) & MASK
    a = ((a ^ c) - rot(c, 4)) & MASK
    b = ((b ^ a) - rot(a, 14)) & MASK
    return ((c ^ b) - rot(b, 24)) & MASK


class Window(io.RawIOBase):
    """The bytes of `path` at the moment of opening, with an unmarked superblock."""

    def __init__(self, path):
        super().__init__()
        self._file = open(path, "rb", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        self._position = 0
        head = bytearray(self._file.read(SUPERBLOCK_BYTES))
        if len(head) < SUPERBLOCK_BYTES or head[:8] != SIGNATURE:
            self._file.close()
            raise Damaged(f"{path}: not an HDF5 file ({self._size} bytes)")
        if head[8] in (2, 3) and head[9] == 8:
            self._unmark(path, head)
        self._head = bytes(head)

    def _unmark(self, path, head):
        end = struct.unpack_from("<Q", head, 28)[0]
        if self._size < end:
            self._file.close()
            raise Damaged(f"{path}: truncated, has {self._size} of {end} bytes")
        head[11] = 0
        struct.pack_into("<Q", head, 28, self._size)
        struct.pack_into("<I", head, 44, lookup3(bytes(head[:44])))

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        self._position = start[whence] + offset
        return self._position

    def tell(self):
        return self._position

    def readinto(self, buffer):
        n = os.preadv(self._file.fileno(), [buffer], self._position)
        overlap = min(SUPERBLOCK_BYTES - self._position, n)
        if overlap > 0:
            start = self._position
            memoryview(buffer).cast("B")[:overlap] = self._head[start : start + overlap]
        self._position += n
        return n

    def close(self):
        self._file.close()
        super().close()


def read(path, function, tries=5):
    """function(open h5py.File) on a snapshot of `path`, repeated where a live writer got
    in between. Raises Damaged if it cannot be read, FileNotFoundError if missing."""
    for attempt in range(tries):
        try:
            with Window(path) as window, h5py.File(window, "r") as file:
                return function(file)
        except (OSError, RuntimeError, KeyError) as error:
            if isinstance(error, (FileNotFoundError, PermissionError)):
                raise
            reason = error
        time.sleep(0.02 * 2**attempt)
    raise Damaged(f"{path}: {reason}")
