"""Matrix multiplication: its options and plan, its engines, the check of results, its worker and its report."""
