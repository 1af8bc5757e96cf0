"""The runtime `slurm`: srun and sbatch around the inner command, and what Slurm says of nodes and jobs."""
