"""The demo page's static files, served by the gateway. No Python of its own."""
