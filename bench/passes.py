"""How many passes worker processes make a second, and how many calls they hold at a time (A3).

    python -m bench.passes [--sessions 640] [--agents 64] [--calls 64] [--workers 1] [--wait 2]

Twice the same backlog, one pass a session: once through a model server that answers at once, once through one that
takes its time. Tasks are run as a worker process runs them, in processes of their own, each of which may hold
`--calls` calls; the model server is another. Printed are the passes a second, the most calls that waited at a time,
the share of the rate that so many calls allow, the processor's time for a pass, and the memory of all workers
together. A database of its own is made for the run, and removed.
"""

# ruff: noqa: T201 - what it prints is what it is for
from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import time
from typing import Any

from bench import throwaway

ANSWER = json.dumps(
    {
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [{"type": "text", "text": '{"memories": []}'}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }
).encode()


HEAD = "wait, s workers  calls  at once  passes/s of ideal  CPU, ms    MiB"


class Model:
    """A server of model calls that costs next to nothing itself. `most` is how many waited at a time."""

    def __init__(self, wait: float) -> None:
        self.wait = wait
        self.waiting = self.most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            await asyncio.sleep(self.wait)
            self.waiting -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)
            await writer.drain()
        finally:
            writer.close()


def model(pipe: Any, wait: float) -> None:
    """A process: tells its port, then, once asked, how many calls waited at a time at most."""

    async def run() -> None:
        served = Model(wait)
        server = await asyncio.start_server(served.serve, "127.0.0.1", 0, backlog=512)
        pipe.send(server.sockets[0].getsockname()[1])
        while not pipe.poll():
            await asyncio.sleep(0.1)
        pipe.send(served.most)

    asyncio.run(run())


def work(pipe: Any, database: dict[str, Any], port: int, calls: int) -> None:
    """A worker process: does the tasks of the queue, one after another, and tells its time and its memory."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    import anthropic  # noqa: F401 - its import takes seconds, once in a worker's life
    from django.conf import settings
    from django.db import connection

    from distillation import tasks
    from distillation.models import Cursor

    connection.settings_dict.update(database)
    settings.ANTHROPIC_BASE_URL = f"http://127.0.0.1:{port}"
    settings.AGENTMEMORY_PROVIDER_KEYS = {"ANTHROPIC_API_KEY": "sk-of-bench"}
    settings.AGENTMEMORY_CALLS_AT_ONCE = calls
    agents = list(Cursor.objects.behind().order_by("agent").values_list("agent", flat=True).distinct())
    before = time.process_time()
    pipe.send("ready")
    pipe.recv()
    for agent in agents:
        tasks.distil_agent(agent)
    pipe.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time() - before))


def backlog(*, sessions: int, agents: int, name: str) -> None:
    """Sessions with one finished turn, found due and marked by the coordinator."""
    from agentmemory.models import Agent, Message, Session, Space
    from distillation.models import Cursor
    from distillation.services import coordinator

    space = Space.objects.create(slug=name)
    owners = Agent.objects.bulk_create(Agent(space=space, handle=f"a{n}") for n in range(agents))
    rows = Session.objects.bulk_create(
        Session(space=space, agent=owners[n % agents], name=f"s{n}", last_seq=4, terminal_seq=4)
        for n in range(sessions)
    )
    Message.objects.bulk_create(
        Message(space=space, session=row, seq=seq, uid=f"m{seq}", type="user", text=text, content=text, digest="0" * 64)
        for row in rows
        for seq, text in ((n, f"In session {row.name} we agreed on number {n}. " * 8) for n in range(1, 5))
    )
    Message.objects.filter(space=space).update(is_speech=True)
    Cursor.objects.bulk_create(Cursor(space=space, agent=row.agent, session=row, watermark=4) for row in rows)
    coordinator.tick()


def measure(*, wait: float, calls: int, workers: int, sessions: int) -> None:
    from django.db import connection

    from distillation.models import Cursor, DistillationPass

    fork = multiprocessing.get_context("spawn")
    ours, theirs = fork.Pipe()
    server = fork.Process(target=model, args=(theirs, wait), daemon=True)
    server.start()
    port = ours.recv()
    database = {name: connection.settings_dict[name] for name in ("HOST", "PORT", "NAME", "USER", "PASSWORD")}
    crew = []
    for _ in range(workers):
        mine, its = fork.Pipe()
        worker = fork.Process(target=work, args=(its, database, port, calls), daemon=True)
        worker.start()
        crew.append((mine, worker))
    for mine, _ in crew:
        mine.recv()
    begun = time.perf_counter()
    for mine, _ in crew:
        mine.send("go")
    told = [mine.recv() for mine, _ in crew]
    seconds = time.perf_counter() - begun
    memory, processor = sum(each[0] for each in told), sum(each[1] for each in told)
    for _, worker in crew:
        worker.join()
    ours.send("how many")
    most = ours.recv()
    assert not Cursor.objects.behind().exists()  # noqa: S101 - else something else was measured
    passes = DistillationPass.objects.filter(outcome="empty").count()
    assert passes == sessions, passes  # noqa: S101
    rate = sessions / seconds
    share = f"{rate * wait / (calls * workers):>8.0%}" if wait else f"{'':>8}"
    cost = processor / sessions * 1000
    print(f"{wait:>7g} {workers:>7} {calls:>6} {most:>8} {rate:>9.1f} {share} {cost:>8.1f} {memory:>6.0f}")
    server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=640)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--calls", type=int, nargs="+", default=[64])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--wait", type=float, default=2.0)
    options = parser.parse_args()
    with throwaway.database():
        from distillation.models import Cursor, DistillationPass

        print(HEAD)
        for number, (wait, calls) in enumerate((w, c) for c in options.calls for w in (0.0, options.wait)):
            backlog(sessions=options.sessions, agents=options.agents, name=f"bench-{number}")
            measure(wait=wait, calls=calls, workers=options.workers, sessions=options.sessions)
            DistillationPass.objects.all().delete()
            Cursor.objects.all().delete()


if __name__ == "__main__":
    main()
