"""From trained weights to what is served: freeze, export, assemble."""
