"""Who runs plans on which arrays: NumPy, the emulator, CUDA, host arrays on CUDA, several
devices."""
