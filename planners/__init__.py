"""What a driving planner says and is: observation to prompt, output to trajectory and plan."""
