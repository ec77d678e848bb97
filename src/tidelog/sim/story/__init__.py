"""The story of a run: a report of what happened, in plain words, in order of time.

`watching` collects `facts` during the run. `report` selects the facts that matter and formats them
as lines. `verdict` adds the rule and the logs after a violation.
"""

from tidelog.sim.story.report import story_lines
from tidelog.sim.story.watching import Watcher

__all__ = ["Watcher", "story_lines"]
