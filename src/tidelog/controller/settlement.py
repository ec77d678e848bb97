"""Settlement: changes of the image, orders and notices of a decision whose writes are done.

Each write settles itself here, in the order of the writes. A conflict in the store is a fact like
any other: the image takes over the node's content, or the node is read again (V15). Nothing is
decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.controller.agenda import Agenda
from tidelog.controller.image import Change, Image
from tidelog.controller.notices import Notices
from tidelog.controller.orders import Order


class Settlement:
    """The consequences of one decision, as they come about."""

    __slots__ = ("agenda", "apply", "image", "notices", "orders")

    def __init__(
        self, image: Image, agenda: Agenda, orders: Sequence[Order], notices: Notices
    ) -> None:
        """Start with `orders` and `notices` of the decision, which stays as it is."""
        self.image = image
        #: Entries for the next decision to look at.
        self.agenda = agenda
        self.orders = list(orders)
        self.notices = notices.copy()
        #: Changes the image; bound here, because each write of thousands calls it.
        self.apply: Callable[[Change], None] = image.apply
