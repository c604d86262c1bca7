"""What `PLIMSOLL_EXPLAIN=1` does when Python starts.

It is imported by `plimsoll.pth`, before the program and before most of the standard library: so it must be light, and
whatever goes wrong in it must not be seen by the program.
"""

try:
    from plimsoll import _watch

    _watch.start()
except Exception as error:
    import sys

    print(f"plimsoll: memory is not watched: {error!r}", file=sys.stderr)
