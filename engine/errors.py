"""What can go wrong in an engine.

EngineError             code, and a message fit for the person who sent the text
├─ UnknownVoice         no such key in the map of voices
├─ Busy                 more utterances than slots
├─ CannotSpeak          nothing in the sentence can be said by this model
├─ BadAudio             the model made NaN, or silence where there was text
└─ ModelFault           the model call itself failed
ModelMissing            at start: a model's files are not there or not whole
"""

from __future__ import annotations


class EngineError(Exception):
    """An utterance failed; its neighbours and the process go on."""

    code = "engine_error"


class UnknownVoice(EngineError):
    """The voice is not one of the engine's."""

    code = "unknown_voice"


class Busy(EngineError):
    """Every slot is taken. The gateway counts slots, so that it should never see this one."""

    code = "busy"


class CannotSpeak(EngineError):
    """Nothing in the sentence can be said by this model."""

    code = "cannot_speak"


class BadAudio(EngineError):
    """The model's output is not sound."""

    code = "bad_audio"


class ModelFault(EngineError):
    """The model call raised; what it raised is in the engine's log."""

    code = "model_fault"


class ModelMissing(Exception):
    """The model cannot be loaded; the message names the file and what to do."""
