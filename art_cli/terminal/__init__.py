"""All that is printed: no key in it, nothing that a terminal obeys."""
