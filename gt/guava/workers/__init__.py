"""Workers that join an orchestrator on another machine."""
