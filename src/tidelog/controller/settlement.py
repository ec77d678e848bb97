"""Settlement of a decision's writes: changes of the image, commands to send, and notices.

Each write applies its own outcome (`Write.settle`), in the order of the writes. After a conflict in
the store, the image takes over the node's content, or the node is read again (V15).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.controller.agenda import Agenda
from tidelog.controller.image import Change, Image
from tidelog.controller.notices import Notices
from tidelog.controller.orders import Order


class Settlement:
    """The consequences of one decision, collected as its writes settle."""

    __slots__ = ("agenda", "apply", "image", "notices", "orders")

    def __init__(
        self, image: Image, agenda: Agenda, orders: Sequence[Order], notices: Notices
    ) -> None:
        """Start with the `orders` and `notices` of the decision; the decision itself stays
        unchanged.
        """
        self.image = image
        #: The partitions and reassignments that the next decision checks.
        self.agenda = agenda
        self.orders = list(orders)
        self.notices = notices.copy()
        #: Function that applies a change to the image. `apply` is an attribute, not a method,
        #: because thousands of writes call it.
        self.apply: Callable[[Change], None] = image.apply
