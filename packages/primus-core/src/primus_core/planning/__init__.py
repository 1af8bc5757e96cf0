"""From a request to a plan: the planner, its outer layers, and what is done with the plan."""
