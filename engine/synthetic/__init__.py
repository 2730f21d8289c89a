"""A model that speaks tones: for load tests, where the sound must prove whose it is and that none is lost."""
