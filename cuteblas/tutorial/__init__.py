"""The kernels of CuTe's tutorials, by ``variant=`` alone."""
