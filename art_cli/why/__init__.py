"""Why a run learned, or did not: findings from what it left behind, most serious first."""
