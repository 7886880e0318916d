"""What a recipe says, and whether it can be run: shapes, checks, costs, stand-ins. Nothing here trains."""
