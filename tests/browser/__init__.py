"""Pages in headless Chromium: what only a browser can tell."""
