"""ChatTTS, an engine of our own over weights in the released layout. Imported by the engine process only."""
