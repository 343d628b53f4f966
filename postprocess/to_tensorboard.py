#!/usr/bin/python3
"""Writes a run's metrics as TensorBoard events, under the published names.

    to_tensorboard.py runs/quickstart -o tensorboard/quickstart
    tensorboard --logdir tensorboard

Needs no library of TensorBoard's: an event file is a row of records, each with its length
and two masked CRC-32C, whose bodies are messages of tensorflow/core/util/event.proto.
"""
import argparse
import os
import struct
import sys

import published
from capstan_run import Run, RunError

CASTAGNOLI = 0x82F63B78


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (CASTAGNOLI if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def masked_crc(data):
    """CRC-32C, rotated by 15 bits and shifted by a constant, as records have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, data):
    """A field of bytes: strings and nested messages."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(wall_time, step=0, metrics=None, version=None):
    """Event: wall_time = 1 (double), step = 2, file_version = 3, summary = 5 with values
    of tag = 1, simple_value = 2 (float)."""
    body = varint(1 << 3 | 1) + struct.pack("<d", wall_time)
    if step:
        body += varint(2 << 3) + varint(step)
    if version:
        body += field(3, version.encode())
    if metrics:
        values = [field(1, field(1, name.encode()) + varint(2 << 3 | 5)
                        + struct.pack("<f", value)) for name, value in metrics.items()]
        body += field(5, b"".join(values))
    return body


def record(body):
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", masked_crc(head)) + body + struct.pack(
        "<I", masked_crc(body))


def write(run, directory, every=1):
    """DIRECTORY/events.out.tfevents...; wall times are seconds of steps from 0."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "events.out.tfevents.0000000000.capstan")
    time = 0.0
    with open(f"{path}.part", "wb") as file:
        file.write(record(event(0.0, version="brain.Event:2")))
        for row, (step, metrics) in enumerate(published.rows(run)):
            time += metrics.get("throughput/duration", 0.0)
            held_out = any(name.startswith("eval") for name in metrics)
            if row % every == 0 or held_out:
                file.write(record(event(time, step, metrics)))
    os.replace(f"{path}.part", path)
    return path


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run directory")
    parser.add_argument("-o", "--output", required=True, help="folder for the events")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th step")
    options = parser.parse_args()
    try:
        print(write(Run(options.run), options.output, max(1, options.every)))
    except RunError as error:
        print(f"to_tensorboard: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
