"""The asyncio gateway: sessions, sentences, pacing, Opus. Never imports torch or onnxruntime."""
