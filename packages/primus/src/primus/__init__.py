"""What those find who come from AMD's Primus or from scripts of their own. The kernel is `primus_core`."""

from pkgutil import extend_path

# Old code that stands in a checkout of AMD's Primus finds the rest of that package below this one.
__path__ = extend_path(__path__, __name__)
