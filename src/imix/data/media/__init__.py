"""Folders of images and of audio files."""
