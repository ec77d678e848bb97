"""What follows from a decision whose writes are done: changes of the image, orders, notices.

Each write settles itself here, in the order of the writes. A conflict in the store is a fact like
any other: what the node holds instead is taken over, or it is read again (V15). Nothing is decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.agenda import Agenda
from tidelog.controller.image import Change, Image
from tidelog.controller.notices import Notices
from tidelog.controller.orders import Order


class Settlement:
    """The consequences of one decision, as they come about."""

    __slots__ = ("agenda", "image", "notices", "orders")

    def __init__(
        self, image: Image, agenda: Agenda, orders: Sequence[Order], notices: Notices
    ) -> None:
        """`orders` and `notices` of the decision, which stays as it is."""
        self.image = image
        #: What the next decision looks at.
        self.agenda = agenda
        self.orders = list(orders)
        self.notices = notices.copy()

    def apply(self, change: Change) -> None:
        """Change the image."""
        self.image.apply(change)
