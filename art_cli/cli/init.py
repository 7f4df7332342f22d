"""`art init`: a folder to start an own task from."""

from __future__ import annotations


def init() -> None:
    """stub"""
