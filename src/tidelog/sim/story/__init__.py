"""The story of a run: what mattered, in plain words, in its order.

`watching` collects facts while the run goes on, `telling` chooses those that matter and puts them
into lines, `ending` tells what is left when something was violated: the logs, and the rule.
"""

from tidelog.sim.story.telling import tell
from tidelog.sim.story.watching import Watcher

__all__ = ["Watcher", "tell"]
