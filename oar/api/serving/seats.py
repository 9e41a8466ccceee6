"""What all requests share, and the part of it that each client and each user may have."""

from contextlib import ExitStack

from oar.api.identity.limits import UnderWay

#: Complete requests for each thread, and bodies that have not come yet, at most: of one client or user, and of all.
WAITING_FOR_A_THREAD, ALL_WAITING_FOR_A_THREAD = 8, 32
ARRIVING_FOR_A_THREAD, ALL_ARRIVING_FOR_A_THREAD = 2, 8


class Places:
    """What all requests share."""

    def __init__(self) -> None:
        self.arriving = UnderWay("sends bodies")
        self.complete = UnderWay("waits for answers")
        self.of_users = UnderWay("waits for answers")


class Seat:
    """The place of one request in what all share; who waits without a thread gives it back before the end."""

    def __init__(self, places: Places, client: str, threads: int) -> None:
        self._places = places
        self._client = client
        self._threads = threads
        self._held = ExitStack()
        self._is_counted = False  # that its user holds it

    def wait_for_body(self) -> None:
        """Count a request of which the body has not come.  Raises TooMany."""
        part, most = ARRIVING_FOR_A_THREAD * self._threads, ALL_ARRIVING_FOR_A_THREAD * self._threads
        self._held.enter_context(self._places.arriving.one_more(self._client, most, part))

    def take(self) -> None:
        """Count a complete request.  Raises TooMany."""
        self._held.close()
        part, most = WAITING_FOR_A_THREAD * self._threads, ALL_WAITING_FOR_A_THREAD * self._threads
        self._held.enter_context(self._places.complete.one_more(self._client, most, part))

    def count_user(self, user: str) -> None:
        """Count the request of a user, from whichever address it comes, once.  Raises TooMany."""
        if not self._is_counted:
            self._is_counted = True
            part, most = WAITING_FOR_A_THREAD * self._threads, ALL_WAITING_FOR_A_THREAD * self._threads
            self._held.enter_context(self._places.of_users.one_more(user, most, part))

    def give_back(self) -> None:
        """Count no more; the second time nothing happens."""
        self._is_counted = True
        self._held.close()
