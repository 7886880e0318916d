"""The stages of a recipe, one file each. Every file here is imported, which registers the stage in it."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
