"""Who runs plans on which arrays: NumPy, the emulator, CUDA, arrays of the host on CUDA, several
devices.

An :class:`~cuteblas.engines.engine.Engine` makes arrays of one library and takes steps; an
:class:`~cuteblas.engines.execution.Execution` is one call on its way: it plans, says which steps to
take, counts and records.
"""
