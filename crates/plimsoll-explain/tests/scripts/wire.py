"""Protocol buffers without a schema, for the scripts beside this one."""


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """Yields (field, wire type, value) of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        field, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            length = {1: 8, 5: 4}[kind]
            value, at = data[at : at + length], at + length
        yield field, kind, value


def put_varint(value):
    out = bytearray()
    while True:
        byte, value = value & 127, value >> 7
        if not value:
            out.append(byte)
            return bytes(out)
        out.append(byte | 128)


def put(field, kind, value):
    key = put_varint(field << 3 | kind)
    if kind == 0:
        return key + put_varint(value)
    if kind == 2:
        return key + put_varint(len(value)) + value
    return key + value
