"""The engine process: models, the scheduler and the link that hands their sound to the gateway."""
