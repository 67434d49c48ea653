"""The whole program but HTTP, in simulated time, under whatever hypothesis thinks of."""
