"""`python -m tests.cards NAME...`: plays cards again and writes them down in docs/cards. Needs root."""

from __future__ import annotations

import asyncio
import sys

from tests.cards import differences, write
from tests.cards.plays import PLAYS, about


async def main(names: list[str]) -> None:
    for name in names or PLAYS:
        results = await PLAYS[name]()
        for line in differences(name, results).values():
            print(line)
        write(name, results, about())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
