"""The story of a run: a report of what happened, in plain words, in order of time.

`watching` collects `facts` during the run, and `timeline` records them with messages and the state
of the cluster for `tidelog sim replay --html`. `report` selects the facts that matter and formats
them as lines. `verdict` adds the rule and the logs after a violation.
"""

from tidelog.sim.story.report import story_lines
from tidelog.sim.story.timeline import TimelineRecorder
from tidelog.sim.story.watching import Watcher

__all__ = ["TimelineRecorder", "Watcher", "story_lines"]
