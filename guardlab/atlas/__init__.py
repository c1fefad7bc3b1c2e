"""The guard atlas: for each guard type a session in which it recompiles, and what dropping it does.

``records`` reads what was recorded, ``runner`` makes it by running the scenarios, which lie one file a family.
"""

from .notes import atlas_notes
from .records import Atlas, AtlasType, AtlasVersions, atlas, atlas_versions

__all__ = ["Atlas", "AtlasType", "AtlasVersions", "atlas", "atlas_notes", "atlas_versions"]
