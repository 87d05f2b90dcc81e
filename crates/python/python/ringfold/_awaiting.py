"""Handles that coroutines of asyncio await."""

import asyncio
import contextlib


async def ended(handle):
    """Returns when the call of a handle is done, or raises its exception."""
    if not handle.is_completed():
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def end():
            # The coroutine may have been cancelled.
            if not future.done():
                future.set_result(None)

        def tell(_):
            # A loop that has closed has no coroutines.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end)

        handle.add_done_callback(tell)
        await future
    if error := handle.exception():
        raise error
