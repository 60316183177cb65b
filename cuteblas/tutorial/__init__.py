"""The kernels of CuTe's tutorials: ``variant=`` runs them by name, and planning never chooses them
by itself."""
