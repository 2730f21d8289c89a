"""The ChatTTS package itself (AGPL), as a reference engine. Imported only where the operator asks for it."""
