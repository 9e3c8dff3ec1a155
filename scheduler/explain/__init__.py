"""Rejections into words. Never here: deciding."""
