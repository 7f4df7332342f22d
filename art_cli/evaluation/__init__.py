"""How good a policy is, against what: candidates, attempts, statistics, comparison, the page."""
