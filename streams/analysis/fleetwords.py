"""Settings of a FleetHPA in words."""

from streams.across.fleetsettings import FleetSettings


def differences_in_words(settings: FleetSettings) -> list[str]:
    """Say in which settings the clusters of a FleetHPA differ, and what is used."""
    return [
        f"its clusters differ in {name} ({', '.join(f'{cluster} {_shown(name, each)}' for cluster, each in values)}): "
        f"{_shown(name, used)} is used"
        for name, values, used in settings.differing
    ]


def _shown(name: str, value: float) -> str:
    return f"{value:g}" if name == "tolerance" else f"{value / 1000:g}s"
