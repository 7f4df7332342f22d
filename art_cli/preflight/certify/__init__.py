"""`art certify`: does `art` compute a base's architecture as transformers does? On any machine."""
