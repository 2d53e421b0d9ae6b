"""The engine: sources give an inventory, rules make an offering of it, and a grant becomes edits."""
