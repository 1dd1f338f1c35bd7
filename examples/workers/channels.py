"""Bytes of any length from one function to another, through channels."""

import asyncio
from dataclasses import dataclass

from waypost.worker import ChannelReader, ChannelWriter, register_worker


@dataclass
class Job:
    source: ChannelReader
    sink: ChannelWriter


async def main() -> None:
    async with register_worker(name="copier") as iii:

        @iii.register_function("text::upper")
        async def upper(job: Job) -> int:
            """Write everything that is read in capital letters."""
            count = 0
            async for piece in job.source:
                await job.sink.write(piece.upper())
                count += len(piece)
            await job.sink.close()
            return count

        there, back = await iii.create_channel(), await iii.create_channel()
        answer = iii.trigger("text::upper", {"source": there.reader_ref, "sink": back.writer_ref})
        for piece in (b"hello, ", b"world"):
            await there.writer.write(piece)
        await there.writer.close()
        print((await back.reader.read_all()).decode())
        print(await answer, "bytes")


if __name__ == "__main__":
    asyncio.run(main())
