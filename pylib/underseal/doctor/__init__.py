"""Doctor: what is wrong with an installation, and what to do about it (docs/doctor.md)."""

from underseal.doctor.examine import examine
from underseal.doctor.model import Finding, Report, Skipped

__all__ = ["Finding", "Report", "Skipped", "examine"]
