"""What limits and replacements keep in the rows of HPAs, and report to other partitions, in their order."""

from streams.state.limits.budgets import BudgetAccount
from streams.state.limits.capacitygroups import CapacityAccount
from streams.state.replacements.fleetshare import FleetShareAccount
from streams.state.subject import HpaAccount

ACCOUNTS: tuple[HpaAccount, ...] = (BudgetAccount(), CapacityAccount(), FleetShareAccount())
