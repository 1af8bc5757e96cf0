"""TorchTitan as a backend of Primus: plans without the framework, trains with TorchTitan's own trainer."""
