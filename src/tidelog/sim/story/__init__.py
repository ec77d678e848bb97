"""The story of a run: what mattered, in plain words, in its order.

`watching` collects facts while the run goes on, `telling` chooses those that matter and puts them
into lines, `verdict` has what follows a violation: the rule, and the logs.
"""

from tidelog.sim.story.telling import tell
from tidelog.sim.story.watching import Watcher

__all__ = ["Watcher", "tell"]
