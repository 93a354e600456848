"""Synthesizes recordings of spoken words with espeak-ng; they are the same every time."""

import _ctypes
import ctypes
import wave
from pathlib import Path

import espeakng_loader

VOICES = ("en-us", "en", "en+f3", "en+m2", "en-gb-scotland+m5", "en-us+f1", "en-029+m7", "en-gb-x-rp+f4")
SYNCHRONOUS, RATE, PITCH, CHARACTERS, UTF8 = 2, 1, 3, 1, 1  # constants from espeak's header

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def synthesize(text: str, path: Path, voice: str = "en", speed: int = 175, pitch: int = 50) -> None:
    """Write a mono 16-bit WAV file of a spoken text: `speed` in words per minute (80..450), `pitch` in 0..100.

    A voice is one of espeak's languages ("en" is British), optionally with a variant ("en+f3").
    """
    frames = bytearray()

    @Callback
    def collect(samples: int | None, count: int, _events: int | None) -> int:
        if samples:
            frames.extend(ctypes.string_at(samples, 2 * count))
        return 0

    espeak = ctypes.CDLL(espeakng_loader.get_library_path())
    try:
        sample_rate = espeak.espeak_Initialize(SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
        assert sample_rate > 0
        espeak.espeak_SetSynthCallback(collect)
        espeak.espeak_ng_SetRandSeed(ctypes.c_long(1))
        assert espeak.espeak_SetVoiceByName(voice.encode()) == 0, f"espeak has no voice {voice}"
        espeak.espeak_SetParameter(RATE, speed, 0)
        espeak.espeak_SetParameter(PITCH, pitch, 0)
        encoded = text.encode()
        size = ctypes.c_size_t(len(encoded) + 1)
        assert espeak.espeak_Synth(encoded, size, 0, CHARACTERS, 0, UTF8, None, None) == 0
        espeak.espeak_Synchronize()
    finally:
        espeak.espeak_Terminate()
        _ctypes.dlclose(espeak._handle)  # espeak keeps internal state, which would change the next recording
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, sample_rate, 0, "NONE", ""))
        file.writeframes(frames)


def write_spoken_words(folder: Path, words: list[str], clips: int) -> None:
    """Write `clips` recordings of each word to a folder named after it, with different voices, speeds and pitches."""
    for word in words:
        (folder / word).mkdir(parents=True, exist_ok=True)
        for i in range(clips):
            speed, pitch = 120 + 37 * i % 121, 20 + 23 * i % 61
            synthesize(word, folder / word / f"{i:04d}.wav", VOICES[i % len(VOICES)], speed, pitch)
