"""MaxText (JAX) behind Primus."""
