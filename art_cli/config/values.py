"""The types of setting values."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

FORBID_UNKNOWN = ConfigDict(extra="forbid")

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+\S*$")]
Address = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):[0-9]{1,5}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
