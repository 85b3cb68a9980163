"""One partition of the log with everything attached that fleethpa decides by."""

from schemas.entries import KINDS as ENTRIES
from streams import attachments
from streams.annotations import OWN_ANNOTATIONS
from streams.state import partition
from streams.state.attached import Attached
from streams.state.fold import handlers

_IN_NAMESPACE = handlers(ENTRIES, attachments.HANDLERS, in_namespace=True)
_OF_PARTITION = handlers(ENTRIES, attachments.HANDLERS, in_namespace=False)


class Partition(partition.PartitionKernel):
    """As the kernel's, with all limits, replacements, accounts, kinds and entries of `streams.attachments`."""

    @classmethod
    def attached(cls) -> Attached:
        return Attached(
            limits=attachments.LIMITS,
            replacements=attachments.REPLACEMENTS,
            accounts=attachments.ACCOUNTS,
            kinds=attachments.KINDS,
            in_namespace=_IN_NAMESPACE,
            of_partition=_OF_PARTITION,
            annotations=OWN_ANNOTATIONS,
        )
