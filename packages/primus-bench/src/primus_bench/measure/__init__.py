"""How it is measured: timing, the device and the machine under test, progress."""
