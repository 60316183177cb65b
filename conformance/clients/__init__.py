"""Packages that know nothing of cuteblas, on its arrays."""
