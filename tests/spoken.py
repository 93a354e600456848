"""Recordings for tests: words spoken by espeak-ng, the same ones every time."""

import _ctypes
import ctypes
import wave
from pathlib import Path

import espeakng_loader

VOICES = ("en-us", "en", "en+f3", "en+m2", "en-gb-scotland+m5", "en-us+f1", "en-029+m7", "en-gb-x-rp+f4")
SYNCHRONOUS, RATE, PITCH, CHARACTERS, UTF8 = 2, 1, 3, 1, 1  # of espeak's header

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def say(text: str, path: Path, voice: str = "en", speed: int = 175, pitch: int = 50) -> None:
    """Write a mono 16-bit wav of a spoken text: `speed` in words a minute (80..450), `pitch` in 0..100.

    A voice is one of espeak's languages ("en" is British), and maybe a variant of it ("en+f3").
    """
    heard = bytearray()

    @Callback
    def hear(samples: int | None, count: int, _events: int | None) -> int:
        if samples:
            heard.extend(ctypes.string_at(samples, 2 * count))
        return 0

    espeak = ctypes.CDLL(espeakng_loader.get_library_path())
    try:
        hertz = espeak.espeak_Initialize(SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
        assert hertz > 0
        espeak.espeak_SetSynthCallback(hear)
        espeak.espeak_ng_SetRandSeed(ctypes.c_long(1))
        assert espeak.espeak_SetVoiceByName(voice.encode()) == 0, f"espeak has no voice {voice}"
        espeak.espeak_SetParameter(RATE, speed, 0)
        espeak.espeak_SetParameter(PITCH, pitch, 0)
        said = text.encode()
        size = ctypes.c_size_t(len(said) + 1)
        assert espeak.espeak_Synth(said, size, 0, CHARACTERS, 0, UTF8, None, None) == 0
        espeak.espeak_Synchronize()
    finally:
        espeak.espeak_Terminate()
        _ctypes.dlclose(espeak._handle)  # it has a memory, so that a second "yes" would not sound as the first
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, hertz, 0, "NONE", ""))
        file.writeframes(heard)


def spoken_folder(folder: Path, words: list[str], clips: int) -> None:
    """Write as many clips of each word, into a folder named by it, with voices, speeds and pitches that vary."""
    for word in words:
        (folder / word).mkdir(parents=True, exist_ok=True)
        for i in range(clips):
            speed, pitch = 120 + 37 * i % 121, 20 + 23 * i % 61
            say(word, folder / word / f"{i:04d}.wav", VOICES[i % len(VOICES)], speed, pitch)
