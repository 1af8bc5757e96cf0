"""The place where AMD's Primus has its command line; here, only the registry of subcommands is left of it."""

from pkgutil import extend_path

# Old code that stands in a checkout of AMD's Primus finds the rest of that package below this one.
__path__ = extend_path(__path__, __name__)
