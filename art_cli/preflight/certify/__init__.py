"""`art certify`: check on any machine that `art` computes a base's architecture correctly."""
