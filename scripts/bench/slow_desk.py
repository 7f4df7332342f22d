"""The order desk of the quickstart with tools that take 200 ms, as a database far away would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from art_cli import tool
from art_cli.types import Message
from art_envs.order_desk import OrderDesk, Size

DELAY = 0.2  # seconds


class SlowDesk(OrderDesk):
    """The same task."""

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[Message]]:
        """Return the demonstrations of the order desk."""
        return OrderDesk.demonstrations(cfg, num)

    @tool()
    async def get_order(self, order_id: str) -> str:
        """Look an order up."""
        await asyncio.sleep(DELAY)
        return await super().get_order(order_id)

    @tool(writes=True)
    async def cancel_order(self, order_id: str) -> str:
        """Cancel an order."""
        await asyncio.sleep(DELAY)
        return await super().cancel_order(order_id)

    @tool(writes=True)
    async def return_order(self, order_id: str) -> str:
        """Take an order back."""
        await asyncio.sleep(DELAY)
        return await super().return_order(order_id)

    @tool(writes=True)
    async def exchange_order(self, order_id: str, size: Size) -> str:
        """Exchange an order."""
        await asyncio.sleep(DELAY)
        return await super().exchange_order(order_id, size)
