"""What holds for every test."""

from hypothesis import settings

# A time limit for one example would measure the machine; pytest's time-out bounds every test as a whole.
settings.register_profile("fleethpa", deadline=None)
settings.load_profile("fleethpa")
