"""Times as statuses spell them: RFC 3339 in UTC, whole seconds."""

from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """Such as 2026-10-05T09:41:12Z. `moment` must be aware; parts of a second are cut off."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def read_stamp(value: object) -> datetime | None:
    """A time from a status, or None for anything that is not one."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
