"""Faults of fleethpa with single HPAs: an analysis of many continues over the others, and names those that it lacks."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from schemas.codec import WireError
from schemas.keys import HpaId


class Fault(NamedTuple):
    """What went wrong: the exception as text, and its traceback."""

    error: str
    trace: str


class Faults(dict[HpaId, Fault]):
    """The first fault of each HPA that an analysis has no result for."""

    @contextmanager
    def of(self, hpa: HpaId) -> Iterator[None]:
        """Do something for one HPA; a fault in it is kept instead of raised.

        Raises WireError: a record cannot be read, which is no fault of the analysis.
        """
        try:
            yield
        except WireError:
            raise
        # Broad on purpose: whatever it is, it concerns this HPA only, and the command names it and fails at its end.
        except Exception as error:
            if hpa not in self:
                self[hpa] = Fault(f"{type(error).__name__}: {error}", traceback.format_exc())
