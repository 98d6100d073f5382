"""Workers that join an orchestrator of another machine."""
