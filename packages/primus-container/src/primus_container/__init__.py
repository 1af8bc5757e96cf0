"""The runtime `container`: podman, docker or apptainer around the inner command."""
