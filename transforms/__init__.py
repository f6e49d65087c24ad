"""One file per transform; installed as `gbfix.transforms`."""
