"""What every room stands on: connections and steps, the installer, the embedded server."""
