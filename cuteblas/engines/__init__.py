"""Who runs plans on which arrays: NumPy, the emulator, CUDA, or several devices."""
