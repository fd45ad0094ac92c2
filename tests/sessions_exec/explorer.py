"""Every course of events of a small session, shortest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.sessions_exec import promises, world
from tests.sessions_exec.world import Act, Bounds, State

Step = tuple[State, Act]


@dataclass
class Explored:
    """Which states there are, and by which step each was first come to; and where a promise was broken."""

    came_by: dict[State, Step | None] = field(default_factory=dict)
    first: dict[tuple[str, bool], Step] = field(default_factory=dict)
    """Of each act, accepted and refused, the first time."""
    steps: int = 0
    broken: str = ""
    trace: list[Step] = field(default_factory=list)
    complete: bool = False

    def way_over(self, step: Step) -> list[Step]:
        return [*self.way_to(step[0]), step]

    def way_to(self, state: State) -> list[Step]:
        """The steps that lead to a state: each act, and the state before it."""
        way: list[Step] = []
        while (step := self.came_by[state]) is not None:
            way.append(step)
            state = step[0]
        return way[::-1]


def walked(acts: Sequence[Act]) -> list[Step]:
    """The steps of these acts from the beginning, as the rules are now."""
    state, steps = State(), []
    for act in acts:
        steps.append((state, act))
        state, _ = world.do(state, act)
    return steps


def explore(bounds: Bounds) -> Explored:
    """Breadth first, up to the first promise that is broken."""
    found = Explored()
    start = State()
    found.came_by[start] = None
    edge = [start]
    for _ in range(bounds.depth):
        edge = _further(found, edge, bounds)
        if found.broken:
            return found
    found.complete = not edge
    return found


def _further(found: Explored, edge: list[State], bounds: Bounds) -> list[State]:
    reached: list[State] = []
    for state in edge:
        for act in world.possible(state, bounds):
            after, accepted = world.do(state, act)
            found.steps += 1
            found.first.setdefault((act.name, accepted), (state, act))
            if broken := promises.broken(state, act, after, accepted):
                found.broken, found.trace = broken, found.way_over((state, act))
                return []
            if after not in found.came_by:
                found.came_by[after] = (state, act)
                reached.append(after)
    return reached
