"""An agent whose dangerous calls wait for a person."""
