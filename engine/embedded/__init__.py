"""The embedded engine: English and Mandarin on any CPU, with no weights to fetch and no GPU.

    spans ─▶ script (runs of one language) ─▶ english | mandarin (text to phoneme words) ─▶ clauses (cuts that
    start early and keep ahead of playout) ─▶ hibari | kokoro (phonemes to samples) ─▶ joins ─▶ int16

`model` drives these as a `SpeechModel`; `styles` fetches the Mandarin styles at set-up. English is spoken by
hibari, Mandarin by Kokoro-82M int8 on ONNX Runtime. Nothing here imports the gateway or torch.
"""
